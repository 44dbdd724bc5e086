"""A transaction delays its own messages and nobody else's, wherever it is open and whoever has it open."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from faststream_outbox.log import Outbox, OutboxMessage
from tests.cases import case
from tests.log.opened import ask, delivered, put

URI = "kafka://orders"


async def _holds_back_the_horizon(connection: AsyncConnection, watcher: AsyncEngine) -> bool:
    mine = (await connection.execute(text("select pg_current_xact_id()::text::bigint"))).scalar_one()
    rows = await ask(watcher, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    return bool(rows[0][0] <= mine)


WRITES = [
    "insert into stranger values (2)",
    "update stranger set n = n + 1",
    "select from stranger for update",
    "create temporary table passing (n int) on commit drop",
    "create index on stranger (n)",
]


async def test_a_writer_in_the_same_database_stalls_nobody(engine: AsyncEngine, outbox: Outbox) -> None:
    await ask(engine, "create table stranger (n int)")
    try:
        await ask(engine, "insert into stranger values (1)")
        for statement in WRITES:
            with case(statement):
                async with engine.connect() as stranger:
                    await stranger.execute(text(statement))
                    assert await _holds_back_the_horizon(stranger, engine)
                    await put(outbox, URI, 1)
                    assert await delivered(outbox, "broker") == [1]
                    await stranger.rollback()
    finally:
        await ask(engine, "drop table stranger")


async def test_a_publisher_that_does_not_commit_delays_its_own_messages_only(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    async with engine.connect() as slow:
        await outbox.publish(slow, OutboxMessage(URI, "slow"))
        await put(outbox, URI, "one")
        assert await delivered(outbox, "broker") == ["one"]
        await outbox.publish(slow, OutboxMessage(URI, "slow again"))
        await put(outbox, URI, "two")
        assert await delivered(outbox, "broker") == ["two"]
        await slow.commit()
    assert await delivered(outbox, "broker") == ["slow", "slow again"]


class Holding:
    """A subscriber that holds its message, and its transaction, until it is let go."""

    def __init__(self) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, message: OutboxMessage, session: AsyncSession | None = None) -> None:
        if session is not None:
            await session.execute(text("select pg_current_xact_id()"))
        self.began.set()
        await self.go_on.wait()


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "with a transaction"])
async def test_a_slow_subscriber_hides_nothing_from_others(outbox: Outbox, *, transactional: bool) -> None:
    """Neither from another group, nor from the other worker of its own."""
    slow = Holding()
    uris = [f"{URI}/{number}" for number in range(50)]
    for uri in uris:
        await put(outbox, uri, uri)
    first = asyncio.create_task(outbox.dispatch(slow, "g", worker_id=0, num_workers=2, transactional=transactional))
    await asyncio.wait_for(slow.began.wait(), 30)
    await put(outbox, f"{URI}/later", "later")
    assert await delivered(outbox, "another") == [*uris, "later"]
    others = await delivered(outbox, "g", worker_id=1, num_workers=2)
    slow.go_on.set()
    handled = (await first).handled
    rest = await delivered(outbox, "g", worker_id=0, num_workers=2)
    assert others
    assert (len(others) + handled + len(rest), {*others} & {*rest}) == (51, set())


async def test_a_plain_handler_runs_with_no_transaction_open(engine: AsyncEngine, outbox: Outbox) -> None:
    open_transactions: list[int] = []

    async def handle(message: OutboxMessage) -> None:
        rows = await ask(
            engine,
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and xact_start is not null",
        )
        open_transactions.append(rows[0][0])

    await put(outbox, URI, 1)
    await outbox.dispatch(handle, "broker")
    assert open_transactions == [0]
