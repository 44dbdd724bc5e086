"""Where groups stand and how they are put elsewhere, also while they are read; lag; waiting for a token."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import Cursor, OutboxMessage
from tests.log.opened import Collector, delivered, drain
from tests.log.rig import LogRig, covers
from tests.waiting import eventually


async def put_at(rig: LogRig, place: Any, group: str = "g") -> Cursor:
    async with AsyncSession(rig.engine) as session, session.begin():
        return await rig.outbox.seek(session, place, group, create=True)


async def position(rig: LogRig, group: str = "g") -> tuple[int, int]:
    async with AsyncSession(rig.engine) as session:
        return await rig.outbox.get_position(session, group)


async def set_position(rig: LogRig, transaction_id: int = 0, offset: int = 0, group: str = "g") -> None:
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.set_position(session, group, transaction_id=transaction_id, offset=offset)


async def test_position_of_a_group_that_never_read_is_the_beginning(driver_rig: LogRig) -> None:
    assert await position(driver_rig) == (0, 0)


async def test_position_is_transaction_and_position_of_the_last_message(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1, 2)
    await delivered(driver_rig.outbox, "g")
    (row,) = await driver_rig.ask("select transaction_id from {log} where position = 2")
    assert await position(driver_rig) == (row["transaction_id"], 2)


async def test_position_that_was_got_can_be_set_again(rig: LogRig) -> None:
    for number in range(6):
        await rig.put("k", number)
    await rig.outbox.dispatch(Collector(), "g", batch_size=3)
    kept = await position(rig)
    await delivered(rig.outbox, "g")
    await set_position(rig, *kept)
    assert await delivered(rig.outbox, "g") == [3, 4, 5]


@pytest.mark.slow
async def test_setting_no_position_is_the_beginning(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    await delivered(rig.outbox, "g")
    await set_position(rig)
    assert await delivered(rig.outbox, "g") == [1, 2]


async def test_position_by_transaction_only_passes_over_nothing_of_later_transactions(rig: LogRig) -> None:
    """The numbers of transactions are not the order of the log: what has a larger one must still come."""
    late = await rig.writer()
    number = await late.xid()
    await rig.put("k", "committed first, larger number")
    await rig.sequence()
    await late.publish("k", "committed second, smaller number")
    await late.commit()
    await rig.sequence()
    await set_position(rig, transaction_id=number, offset=2**40)
    assert "committed first, larger number" in await delivered(rig.outbox, "g")


@pytest.mark.parametrize("wrong", [-1, True, "1", 2**63, 1.5])
async def test_position_that_cannot_be_is_refused(rig: LogRig, wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        await set_position(rig, offset=wrong)


@pytest.mark.slow
async def test_seeking_to_each_kind_of_place(rig: LogRig) -> None:
    event_id = uuid4()
    await rig.put("k", 1)
    await rig.sequence()
    await rig.ask("update {ticks} set at = now() - interval '1 hour'")
    between = datetime.now(UTC) - timedelta(minutes=30)
    await rig.put("k", 2, event_id=str(event_id))
    await rig.put("k", 3)
    await rig.sequence()
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
        await put_at(rig, place)
        assert await delivered(rig.outbox, "g") == expected, place


@pytest.mark.parametrize(
    "place", [datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None), "no such event", UUID(int=1), 17, None]
)
async def test_place_that_is_none_is_refused(rig: LogRig, place: Any) -> None:
    with pytest.raises((InvalidOption, TypeError)):
        await put_at(rig, place)


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
    batch = await reader.next_batch()
    assert batch is not None
    await put_at(rig, "earliest")

    async def succeed(_: Any) -> Outcome:
        return DONE

    await BatchRun(reader.member, reader.settler, batch).run(succeed)
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
    seeking = asyncio.create_task(put_at(rig, "earliest"))

    async def waits() -> bool:
        return await rig.blocked_by(cutter.connection)

    await eventually(waits)
    await cutter.commit()
    await seeking
    spans = await rig.spans()
    assert covers(spans)
    assert {span["position"] for span in spans} == {0}


async def test_first_seek_of_a_group_at_the_same_time_as_its_first_reader(rig: LogRig) -> None:
    offsets = rig.outbox.tables.offsets.name
    maker = await rig.writer()
    await maker.execute(f"insert into {offsets} (consumer_group, lo, hi) values ('g', 0, 255)")
    await rig.put("k", 1)
    await rig.sequence()
    seeking = asyncio.create_task(put_at(rig, "latest"))

    async def waits() -> bool:
        return seeking.done() or await rig.blocked_by(maker.connection)

    await eventually(waits)
    await maker.commit()
    await seeking
    assert [(span["tick"], span["position"]) for span in await rig.spans()] == [(1, 1)]


async def test_seek_is_heeded_by_a_reader_that_has_nothing_to_do(rig: LogRig) -> None:
    collector, stop = Collector(), asyncio.Event()
    await rig.put("k", 1)
    running = asyncio.create_task(rig.outbox.run(collector, "g", stop_event=stop, poll_interval=60.0))
    await eventually(lambda: collector.payloads == [1])
    await put_at(rig, "earliest")
    await eventually(lambda: collector.payloads == [1, 1])
    stop.set()
    await running


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

    async def bad(message: OutboxMessage) -> None:
        raise ValueError(message.payload)

    await drain(outbox, bad, "g")
    await put_at(rig, "earliest")
    assert await delivered(outbox, "g") == [1, 2]


async def test_lag_counts_what_the_filter_matches_and_is_not_read(rig: LogRig) -> None:
    for number in range(10):
        await rig.put(f"mine/{number}", number)
        await rig.put("other", number)
    read = (await rig.outbox.dispatch(Collector(), "g", "mine", batch_size=4)).handled
    await rig.outbox.dispatch(Collector(), "all")
    lags = {(lag.group, lag.uri): lag for lag in await rig.outbox.lag()}
    assert (lags["g", "mine"].messages, lags["all", ""].messages) == (10 - read, 0)
    assert lags["g", "mine"].seconds > 0
    assert lags["all", ""].seconds == 0


async def test_lag_names_an_owner_only_while_its_lease_lives(rig: LogRig) -> None:
    await rig.put("k", 1)
    reader = await rig.reader(fixed=(0, 255), lease_ttl_seconds=3600.0)
    await reader.arrange()
    (lag,) = await rig.outbox.lag("g")
    assert lag.owner == reader.member.leases.me
    # Its process was killed, and the lease has run out since.
    await rig.ask("update {offsets} set until = clock_timestamp() - interval '1 s'")
    (lag,) = await rig.outbox.lag("g")
    assert (lag.owner, lag.messages) == (None, 1)


async def test_lag_by_slot_names_the_slots_that_are_behind(rig: LogRig) -> None:
    await rig.put("a", 1, 2)
    await rig.put("b", 3)
    await rig.outbox.dispatch(Collector(), "g", batch_size=1)
    lags = await rig.outbox.lag_by_slot("g")
    assert {slot: count for slot, (count, _) in lags.items()} == {slot_of("a"): 1, slot_of("b"): 1}


async def test_lag_sees_a_late_message_behind_the_cursor_of_others(rig: LogRig) -> None:
    late = await rig.writer()
    await late.publish("late", 1)
    await rig.put("k", 2)
    await delivered(rig.outbox, "g")
    await late.commit()
    assert [lag.messages for lag in await rig.outbox.lag("g")] == [1]
    assert await delivered(rig.outbox, "g") == [1]


async def test_waiting_ends_when_the_group_has_handled_what_was_published(rig: LogRig) -> None:
    token = await rig.put("k", 1, 2)
    with pytest.raises(TimeoutError):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=0.1)
    await rig.outbox.dispatch(Collector(), "g", batch_size=1)
    with pytest.raises(TimeoutError):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=0.1)
    await rig.outbox.dispatch(Collector(), "g")
    await rig.outbox.wait_until_caught_up(token, "g", timeout=30)


async def test_waiting_does_not_end_before_anybody_has_sequenced_anything(rig: LogRig) -> None:
    await put_at(rig, "earliest")
    token = await rig.put("k", 1)
    with pytest.raises(TimeoutError):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=0.1)


async def test_waiting_does_not_end_while_a_message_is_to_be_tried_again(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
    token = await rig.put("k", 1)

    async def bad(message: OutboxMessage) -> None:
        raise ValueError(message.payload)

    await outbox.dispatch(bad, "g")
    with pytest.raises(TimeoutError):
        await outbox.wait_until_caught_up(token, "g", timeout=0.1)
    await asyncio.sleep(0.02)
    await outbox.dispatch(Collector(), "g")
    await outbox.wait_until_caught_up(token, "g", timeout=30)


async def test_waiting_for_a_late_message_does_not_end_before_it_is_read(rig: LogRig) -> None:
    late = await rig.writer()
    positions = await late.publish("late", 1)
    await rig.put("k", 2)
    await delivered(rig.outbox, "g")
    await late.commit()
    token = type(await rig.put("k", 3))(positions)
    with pytest.raises(TimeoutError):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=0.1)
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
        stop, collector = asyncio.Event(), Collector()
        running = asyncio.create_task(rig.outbox.run(collector, "listening", stop_event=stop))
        await rig.put("k", "old")
        await eventually(lambda: collector.payloads == ["old"])
        for number in range(5):
            await tenant.put("k", number)
            await tenant.sequence()
        await asyncio.sleep(0.2)
        latest = await rig.outbox.client.latest()
        stop.set()
        await running
    assert latest == Cursor(1, 1)
