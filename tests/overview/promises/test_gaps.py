"""Whose transaction keeps a gap open: its session, what it runs, and what it calls itself."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.overview import Overview
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.conftest import rig
from tests.log.opened import opened, put
from tests.log.rig import LogRig, Writer

__all__ = ["rig"]


@pytest.fixture
async def overview(rig: LogRig) -> AsyncIterator[Overview]:
    overview = Overview(rig.engine, log_tables=rig.outbox.tables)
    yield overview
    await overview.close()


async def pid_of(connection: AsyncConnection) -> int:
    return int((await connection.execute(text("select pg_backend_pid()"))).scalar_one())


async def opened_by(rig: LogRig, name: str, marker: str = "select 1") -> tuple[Writer, int]:
    """A transaction that has published, and whose last statement is the marker."""
    writer = await rig.writer()
    pid = await pid_of(writer.connection)
    await writer.execute(f"set local application_name = '{name}'")
    await writer.publish("k", name)
    await writer.execute(marker)
    return writer, pid


async def test_oldest_gap_tells_the_session_and_its_statement(rig: LogRig, overview: Overview) -> None:
    _, pid = await opened_by(rig, "checkout", "select 'the culprit'")
    await rig.put("k", 2)
    await rig.sequence()
    (gap,) = await overview.gaps()
    assert (gap.first_position, gap.last_position, gap.backend_pid) == (1, 1, pid)
    assert (gap.query, gap.application_name, gap.is_certain) == ("select 'the culprit'", "checkout", True)
    (owner,) = gap.owners
    assert (owner.state, owner.prepared) == ("idle in transaction", None)
    assert owner.user == (rig.engine.url.username or owner.user)
    assert owner.age_seconds >= gap.age_seconds > 0


async def test_gap_is_gone_when_its_transaction_has_ended(rig: LogRig, overview: Overview) -> None:
    writer, _ = await opened_by(rig, "checkout")
    await rig.put("k", 2)
    await rig.sequence()
    assert len(await overview.gaps()) == 1
    await writer.rollback()
    assert await overview.gaps() == []
    assert await rig.gaps() == [(1, 1)], "nobody has looked at it since"


async def test_transaction_that_has_drawn_nothing_owns_nothing(rig: LogRig, overview: Overview) -> None:
    stranger = await rig.writer()
    await stranger.xid()
    rolled_back = await rig.writer()
    await rolled_back.publish("k", 1)
    await rolled_back.rollback()
    await rig.put("k", 2)
    await rig.sequence()
    assert await overview.gaps() == []


async def test_numbers_behind_the_last_message_are_open_too(rig: LogRig, overview: Overview) -> None:
    """Nothing was published after them, and so no tick has missed them."""
    await rig.put("k", 1)
    await rig.sequence()
    writer, pid = await opened_by(rig, "alone")
    (gap,) = await overview.gaps()
    assert (gap.first_position, gap.last_position, gap.backend_pid, gap.age_seconds > 0) == (2, 2, pid, True)
    await writer.commit()
    assert await overview.gaps() == []


async def test_gaps_before_the_first_tick_are_told(rig: LogRig, overview: Overview) -> None:
    _, pid = await opened_by(rig, "first")
    assert [(gap.first_position, gap.backend_pid) for gap in await overview.gaps()] == [(1, pid)]


async def test_numbers_between_messages_that_nobody_has_sequenced_are_told_apart(
    rig: LogRig, overview: Overview
) -> None:
    await rig.put("k", 1)
    _, first_pid = await opened_by(rig, "first")
    await rig.put("k", 3, 4)
    _, second_pid = await opened_by(rig, "second")
    found = await overview.gaps()
    assert [(gap.first_position, gap.last_position, gap.backend_pid) for gap in found] == [
        (2, 2, first_pid),
        (5, 5, second_pid),
    ]


async def test_session_that_was_idle_before_the_number_was_drawn_does_not_own_it(
    rig: LogRig, overview: Overview
) -> None:
    _, first_pid = await opened_by(rig, "first")
    await rig.put("k", "between")
    await rig.sequence()
    _, second_pid = await opened_by(rig, "second")
    await rig.put("k", "last")
    await rig.sequence()
    found = {gap.first_position: gap for gap in await overview.gaps()}
    assert {position: (gap.backend_pid, gap.is_certain) for position, gap in found.items()} == {
        1: (first_pid, True),
        3: (second_pid, True),
    }
    assert [gap.first_position for gap in await overview.gaps(limit=1)] == [1], "the oldest first"


async def test_where_it_may_be_one_of_several_all_are_told(rig: LogRig, overview: Overview) -> None:
    writers = [await opened_by(rig, name) for name in ("one", "two")]
    await rig.put("k", "last")
    await rig.sequence()
    (gap,) = await overview.gaps()
    assert (gap.first_position, gap.last_position, gap.is_certain) == (1, 2, False)
    assert [owner.backend_pid for owner in gap.owners] == [pid for _, pid in writers]
    assert gap.backend_pid == writers[0][1], "the oldest"


async def test_many_old_gaps_that_nobody_owns_do_not_hide_one(rig: LogRig, overview: Overview) -> None:
    holder = await rig.writer()
    await holder.xid()
    lost = await rig.writer()
    for _ in range(10):
        await lost.publish("k", 0)
        await lost.rollback()
        await rig.put("k", 0)
    for _ in range(3):
        await rig.tick()
    _, pid = await opened_by(rig, "late")
    await rig.put("k", 0)
    for _ in range(3):
        await rig.tick()
    assert len(await rig.gaps()) == 11
    assert [gap.backend_pid for gap in await overview.gaps(limit=1)] == [pid]


async def test_without_the_right_to_see_others_the_query_is_unknown(
    rig: LogRig, overview: Overview, database_url: URL
) -> None:
    await rig.ask("drop role if exists gap_viewer")
    await rig.ask("create role gap_viewer")
    tables = ", ".join(table.name for table in rig.outbox.tables.all)
    await rig.ask(f"grant select on {tables} to gap_viewer")
    engine = create_async_engine(
        database_url, poolclass=NullPool, connect_args={"server_settings": {"role": "gap_viewer"}}
    )
    viewing = Overview(engine, log_tables=rig.outbox.tables)
    writer, pid = await opened_by(rig, "checkout")
    await rig.put("k", 2)
    await rig.sequence()
    after, _ = await opened_by(rig, "behind")
    try:
        (gap,) = await viewing.gaps()
        assert (gap.first_position, gap.application_name, gap.query) == (1, "checkout", None)
        assert pid in [owner.backend_pid for owner in gap.owners]
        assert {(owner.state, owner.query, owner.age_seconds) for owner in gap.owners} == {(None, None, None)}
        assert gap.age_seconds > 0
    finally:
        await viewing.close()
        await writer.rollback()
        await after.rollback()
        await rig.ask("drop owned by gap_viewer")
        await rig.ask("drop role gap_viewer")


@pytest.fixture(scope="module")
def preparing() -> Iterator[PostgresServer]:
    """A server that allows prepared transactions."""
    version = int(os.environ.get("OUTBOX_TEST_PG", "18"))
    settings = {"fsync": "off", "max_prepared_transactions": "5"}
    with PostgresServer.start(version=version, settings=settings) as server:
        yield server


@pytest.fixture
async def outbox(preparing: PostgresServer) -> AsyncIterator[Outbox]:
    engine = create_async_engine(preparing.dsn())
    async with opened(engine) as outbox:
        yield outbox
    await engine.dispose()


async def _roll_back(engine: AsyncEngine, name: str) -> None:
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text(f"rollback prepared '{name}'"))


@pytest.mark.slow
async def test_prepared_transaction_is_told_by_its_name(outbox: Outbox) -> None:
    overview = Overview(outbox.engine, log_tables=outbox.tables)
    async with outbox.engine.connect() as publisher:
        await outbox.publish(publisher, OutboxMessage("k", 1))
        await publisher.execute(text("prepare transaction 'forgotten'"))
    await put(outbox, "k", 2)
    await outbox.client.sequencer.catch_up()
    (gap,) = await overview.gaps()
    assert (gap.first_position, gap.backend_pid, [owner.prepared for owner in gap.owners]) == (1, None, ["forgotten"])
    assert gap.owners[0].age_seconds is not None
    assert [found["prepared"] for found in await outbox.open_gaps(age=0.0)] == ["forgotten"]
    await _roll_back(outbox.engine, "forgotten")
    assert await overview.gaps() == []
    await overview.close()
