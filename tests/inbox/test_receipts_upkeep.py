"""Old receipts go away by themselves, in slices, in one process at a time."""

import pytest
from sqlalchemy import func, insert, literal, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox._internal.inbox import receipts as upkeep
from faststream_outbox.errors import SchemaMismatch
from tests.inbox.conftest import Scene
from tests.waiting import eventually


async def fill(scene: Scene, count: int, days: int) -> None:
    number = func.generate_series(1, count).column_valued("number")
    age = func.now() - func.make_interval(0, 0, 0, days)
    rows = select(literal("billing"), literal(f"{days}"), func.cast(number, scene.table.c.message_id.type), age)
    names = ["consumer", "source", "message_id", "received_at"]
    async with scene.engine.begin() as connection:
        await connection.execute(insert(scene.table).from_select(names, rows))


async def test_receipts_that_are_old_go_away_slice_by_slice(
    scene: Scene, driver_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "SLICE", 10)
    await fill(scene, 35, 8)
    await fill(scene, 5, 6)
    inbox = scene.inbox(engine=driver_engine)
    await inbox.clean()
    assert {source for _, source, _ in await scene.receipts()} == {"6"}
    assert scene.reported == [events.ReceiptsCleaned("inbox", 35)]
    await inbox.stop()


async def test_cleaning_by_hand_leaves_no_connection_open(scene: Scene, driver_engine: AsyncEngine) -> None:
    await fill(scene, 3, 8)
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
    await fill(scene, 3, 8)
    async with scene.inbox().receive("m1", source="orders"):
        pass
    await eventually(lambda: scene.count(events.ReceiptsCleaned))
    assert await scene.receipts() == [("billing", "orders", "m1")]


async def test_receipts_stay_for_ever_where_that_is_asked_for(scene: Scene) -> None:
    await fill(scene, 3, 3650)
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
