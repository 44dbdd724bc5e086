"""What operators see and delete of receipts; and old ones go away by themselves, in slices."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.inbox import receipts as module
from faststream_outbox._internal.inbox.receipts import Receipts
from faststream_outbox._internal.schema.names import Names
from faststream_outbox.errors import InvalidOption, SchemaMismatch
from tests.inbox.conftest import Scene
from tests.waiting import eventually


@pytest.fixture
async def receipts(scene: Scene) -> AsyncIterator[Receipts]:
    connection = DedicatedConnection(scene.engine)
    yield Receipts(connection, Names.of(scene.table))
    await connection.close()


async def fill(scene: Scene, count: int = 3, age: str = "hours => i", source: str = "orders") -> None:
    """Receipts of one consumer, as old as is said of the number of each."""
    rows = f"select 'billing', '{source}', i::text, now() - make_interval({age}) from generate_series(1, {count}) i"
    async with scene.engine.begin() as connection:
        await connection.execute(text(f"insert into inbox (consumer, source, message_id, received_at) {rows}"))


async def fill_both(scene: Scene) -> None:
    """Three receipts of one consumer, an hour apart, and one of another."""
    await fill(scene)
    async with scene.engine.begin() as connection:
        await connection.execute(text("insert into inbox (consumer, source, message_id) values ('audit', 'x', '1')"))


async def test_of_an_empty_table_there_is_nothing(receipts: Receipts) -> None:
    counts = await receipts.count()
    assert (counts.consumers, counts.first_received_at, counts.last_received_at) == ([], None, None)


async def test_are_counted_by_consumer(scene: Scene, receipts: Receipts) -> None:
    await fill_both(scene)
    counts = await receipts.count()
    assert [(each.consumer, each.receipts, each.is_estimate) for each in counts.consumers] == [
        ("audit", 1, False),
        ("billing", 3, False),
    ]
    assert counts.last_received_at - counts.first_received_at > timedelta(hours=2)


async def test_are_counted_up_to_a_bound(scene: Scene, receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill_both(scene)
    monkeypatch.setattr(module, "MOST_COUNTED", 2)
    counts = await receipts.count()
    assert [(each.receipts, each.is_estimate) for each in counts.consumers] == [(1, False), (2, True)]
    assert await receipts.count_old(timedelta(minutes=30)) == 2


async def test_that_are_old_are_counted_and_deleted(
    scene: Scene, receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_both(scene)
    keep = timedelta(minutes=90)
    assert await receipts.count_old(keep) == 2
    steps: list[int] = []
    assert (await receipts.clean(keep, steps.append), steps) == (2, [2])
    assert [consumer for consumer, _, _ in await scene.receipts()] == ["audit", "billing"]


async def test_a_time_that_would_keep_nothing_is_refused(receipts: Receipts) -> None:
    with pytest.raises(InvalidOption, match="keep"):
        await receipts.clean(timedelta(seconds=-1))


async def test_receipts_that_are_old_go_away_slice_by_slice(
    scene: Scene, driver_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE", 10)
    await fill(scene, 35, "days => 8", "old")
    await fill(scene, 5, "days => 6", "young")
    inbox = scene.inbox(engine=driver_engine)
    await inbox.clean()
    assert {source for _, source, _ in await scene.receipts()} == {"young"}
    assert scene.reported == [events.ReceiptsCleaned("inbox", 35)]
    await inbox.stop()


async def test_cleaning_by_hand_leaves_no_connection_open(scene: Scene, driver_engine: AsyncEngine) -> None:
    await fill(scene, 3, "days => 8")
    async with scene.engine.connect() as looking:
        sessions = text("select count(*) from pg_stat_activity where datname = current_database()")
        before = (await looking.execute(sessions)).scalar_one()
        await looking.rollback()
        await scene.inbox(engine=driver_engine).clean()

        async def are_as_before() -> bool:
            found = (await looking.execute(sessions)).scalar_one()
            await looking.rollback()
            return bool(found <= before)

        await eventually(are_as_before, 10)


async def test_receipts_go_away_while_messages_are_received(scene: Scene) -> None:
    await fill(scene, 3, "days => 8")
    async with scene.inbox().receive("m1", source="orders"):
        pass
    await eventually(lambda: scene.count(events.ReceiptsCleaned))
    assert await scene.receipts() == [("billing", "orders", "m1")]


async def test_receipts_stay_for_ever_where_that_is_asked_for(scene: Scene) -> None:
    await fill(scene, 3, "days => 3650")
    inbox = scene.inbox(keep=None)
    inbox.start()
    await inbox.clean()
    assert len(await scene.receipts()) == 3


async def test_table_that_is_not_as_needed_is_told(scene: Scene) -> None:
    inbox = scene.inbox()
    await inbox.validate_schema(check_rights=True)
    async with scene.engine.begin() as connection:
        await connection.exec_driver_sql("drop index inbox_received_idx")
    with pytest.raises(SchemaMismatch, match="inbox_received_idx"):
        await inbox.validate_schema()
