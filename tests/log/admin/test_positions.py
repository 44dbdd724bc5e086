"""Where groups stand and how they are put elsewhere, also while they are read; lag; waiting for a token."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import Cursor, Token
from tests.cases import case
from tests.log.opened import Collector, delivered, drain, reading, refuse
from tests.log.rig import LogRig, covers, in_hand, succeed
from tests.waiting import eventually


async def set_position(rig: LogRig, transaction_id: int = 0, offset: int = 0) -> None:
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.set_position(session, "g", transaction_id=transaction_id, offset=offset)


async def is_behind(rig: LogRig, token: Token) -> bool:
    """Whether waiting for a token does not end."""
    try:
        await rig.outbox.wait_until_caught_up(token, "g", timeout=0.1)
    except TimeoutError:
        return True
    return False


async def test_position_is_read_and_set_in_the_callers_transaction(driver_rig: LogRig) -> None:
    outbox = driver_rig.outbox
    async with AsyncSession(driver_rig.engine) as session:
        assert await outbox.get_position(session, "g") == (0, 0)
    await driver_rig.put("k", *range(5))
    await delivered(outbox, "g")
    (last,) = await driver_rig.ask("select transaction_id, position from {log} where position = 5")
    async with AsyncSession(driver_rig.engine) as session:
        assert await outbox.get_position(session, "g") == (*last.values(),)
        await outbox.set_position(session, "g", offset=2)
        assert (await outbox.get_position(session, "g"))[1] == 2
        await session.rollback()
        assert await outbox.get_position(session, "g") == (*last.values(),)
        await outbox.set_position(session, "g", offset=2)
        await session.commit()
    assert await delivered(outbox, "g") == [2, 3, 4]


async def test_position_by_transaction_only_passes_over_nothing_of_later_transactions(rig: LogRig) -> None:
    """The numbers of transactions are not the order of the log: what has a larger one must still come."""
    late = await rig.writer()
    number = await late.xid()
    await rig.put_apart("k", "committed first, larger number")
    await late.publish("k", "committed second, smaller number")
    await late.commit()
    await rig.sequence()
    await set_position(rig, transaction_id=number, offset=2**40)
    assert "committed first, larger number" in await delivered(rig.outbox, "g")


async def test_position_that_cannot_be_is_refused(rig: LogRig) -> None:
    wrongs: list[Any] = [-1, True, "1", 2**63, 1.5]
    for wrong in wrongs:
        with case(wrong), pytest.raises(InvalidOption):
            await set_position(rig, offset=wrong)


@pytest.mark.slow
async def test_seeking_to_each_kind_of_place(driver_rig: LogRig) -> None:
    rig = driver_rig
    event_id = uuid4()
    await rig.put_apart("k", 1)
    await rig.ask("update {ticks} set at = now() - interval '1 hour'")
    between = datetime.now(UTC) - timedelta(minutes=30)
    await rig.put("k", 2, event_id=str(event_id))
    await rig.put_apart("k", 3)
    await delivered(rig.outbox, "g")
    for place, expected in [
        ("earliest", [1, 2, 3]),
        ("latest", []),
        (between, [2, 3]),
        (datetime(1999, 1, 1, tzinfo=UTC), [1, 2, 3]),
        (event_id, [2, 3]),
        (str(event_id), [2, 3]),
        (Cursor(1, 1), [2, 3]),
        ((0, 0), [1, 2, 3]),
    ]:
        with case(place):
            await rig.seek(place)
            assert await delivered(rig.outbox, "g") == expected


async def test_place_that_is_none_is_refused(rig: LogRig) -> None:
    for place in (datetime(2020, 1, 1), "no such event", UUID(int=1), 17, None):  # noqa: DTZ001
        with case(place), pytest.raises((InvalidOption, TypeError)):
            await rig.seek(place)


async def test_new_group_replays_in_the_same_order(rig: LogRig) -> None:
    late = await rig.writer()
    await late.publish("late", "late")
    for number in range(20):
        await rig.put(f"k{number % 3}", number)
        if number == 10:
            await late.commit()
        await rig.sequence()
    first = await delivered(rig.outbox, "one", batch_size=3)
    assert await delivered(rig.outbox, "two", batch_size=7) == first
    assert len(first) == 21


async def test_batch_in_hand_does_not_undo_a_seek(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    await rig.sequence()
    reader = await rig.reader()
    await reader.join()
    batch = await in_hand(reader)
    await rig.seek("earliest")
    await batch.run(succeed)
    assert await delivered(rig.outbox, "g") == [1, 2, 3]


async def test_seek_while_a_span_is_cut_moves_all_of_the_group(rig: LogRig) -> None:
    """The half that the other transaction is just making must not stay where it was."""
    await rig.put("k", *range(4))
    await delivered(rig.outbox, "g")
    (span,) = await rig.spans()
    cutter = await rig.writer()
    cut = statements("group", rig.outbox.client.names)["cut_span"]
    values = {"group": "g", "uri": "", "lo": 0, "hi": 255, "at": 128, "epoch": span["epoch"], "me": uuid4()}
    await cutter.connection.exec_driver_sql(cut.dollar, cut.arguments(values))
    seeking = asyncio.create_task(rig.seek("earliest"))
    await eventually(lambda: rig.blocked_by(cutter.connection))
    await cutter.commit()
    await seeking
    spans = await rig.spans()
    assert covers(spans)
    assert {span["position"] for span in spans} == {0}


async def test_first_seek_of_a_group_at_the_same_time_as_its_first_reader(rig: LogRig) -> None:
    offsets = rig.outbox.tables.offsets.name
    maker = await rig.writer()
    await maker.execute(f"insert into {offsets} (consumer_group, lo, hi) values ('g', 0, 255)")
    await rig.put_apart("k", 1)
    seeking = asyncio.create_task(rig.seek("latest"))
    await eventually(lambda: rig.blocked_by(maker.connection))
    await maker.commit()
    await seeking
    assert [(span["tick"], span["position"]) for span in await rig.spans()] == [(1, 1)]


async def test_rolled_back_seek_changes_nothing(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    await delivered(rig.outbox, "g")
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.seek(session, "earliest", "g")
        await session.rollback()
    assert await delivered(rig.outbox, "g") == []


async def test_seek_back_hands_out_again_what_was_set_aside(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NoRetry(), on_parked="hold_key")
    await rig.put("k", 1, 2)
    await drain(outbox, refuse, "g")
    await rig.seek("earliest")
    assert await delivered(outbox, "g") == [1, 2]


async def test_waiting_ends_when_the_group_has_handled_what_was_published(driver_rig: LogRig) -> None:
    rig = driver_rig
    token = await rig.put("k", 1, 2)
    assert await is_behind(rig, token)
    await rig.outbox.dispatch(Collector(), "g", batch_size=1)
    assert await is_behind(rig, token)
    await rig.outbox.dispatch(Collector(), "g")
    await rig.outbox.wait_until_caught_up(token, "g", timeout=30)


async def test_waiting_does_not_end_before_anybody_has_sequenced_anything(rig: LogRig) -> None:
    await rig.seek("earliest")
    assert await is_behind(rig, await rig.put("k", 1))


async def test_waiting_does_not_end_while_a_message_is_to_be_tried_again(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    token = await rig.put("k", 1)
    await outbox.dispatch(refuse, "g")
    assert await is_behind(rig, token)
    await rig.ask("update {deferred} set due = now()")
    await outbox.dispatch(Collector(), "g")
    await outbox.wait_until_caught_up(token, "g", timeout=30)


async def test_waiting_for_a_late_message_does_not_end_before_it_is_read(rig: LogRig) -> None:
    late = await rig.writer()
    positions = await late.publish("late", 1)
    await rig.put("k", 2)
    await delivered(rig.outbox, "g")
    await late.commit()
    token = type(await rig.put("k", 3))(positions)
    assert await is_behind(rig, token)
    await delivered(rig.outbox, "g")
    await rig.outbox.wait_until_caught_up(token, "g", timeout=30)


@pytest.fixture
async def tenant_engine(engine: AsyncEngine, database_url: URL) -> AsyncIterator[AsyncEngine]:
    async with engine.begin() as connection:
        await connection.execute(text("create schema tenant"))
    tenant = create_async_engine(database_url)
    yield tenant
    await tenant.dispose()
    async with engine.begin() as connection:
        await connection.execute(text("drop schema tenant cascade"))


async def test_log_of_the_same_name_in_another_schema_changes_nothing(rig: LogRig, tenant_engine: AsyncEngine) -> None:
    """Its ticks are not ours: a group that starts at the end must not start at the beginning."""
    async with LogRig.made(tenant_engine, schema="tenant") as tenant:
        collector = Collector()
        async with reading(rig.outbox, collector, "listening"):
            await rig.put("k", "old")
            await eventually(lambda: collector.payloads == ["old"])
            await tenant.put_apart("k", *range(5))
            await asyncio.sleep(0.2)
            latest = await rig.outbox.client.latest()
    assert latest == Cursor(1, 1)
