"""Ten writers over twenty aggregates, long transactions and rollbacks, and a foreign transaction that never ends.

Each writer locks an aggregate, publishes its next version, and stays open for up to a second; one in ten rolls
back. A transaction that has written stays idle in another database of the cluster for the whole run. Three readers
side by side: plain, transactional, and for comparison one that follows the rule of reading by transaction id.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import asyncpg
import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.log_account import Event, log_account, percentile
from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_scene import LOG, LogScene, idle_writer, log_tables
from tests.waiting import eventually

pytestmark = pytest.mark.faults

WRITERS = 10
SOON = 20.0
"""Seconds from a commit to its handler at most: thousands of times what it takes, for a machine that is very busy."""


class Watch:
    """What one reader was given, in which order and when."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[Event] = []
        self.at: dict[Event, float] = {}

    def note(self, payload: Any) -> Event:
        event = (payload["name"], payload["version"])
        self.seen.append(event)
        self.at.setdefault(event, perf_counter())
        return event

    def latencies(self, log_business: LogBusiness, *, held: bool) -> list[float]:
        """Seconds from COMMIT to the handler, of transactions that were held open or of those that were not."""
        commits = log_business.commits
        return [at - commits[event].at for event, at in self.at.items() if commits[event].held == held]

    def report(self, log_business: LogBusiness) -> str:
        parts = [self.name]
        for held in (False, True):
            seconds = self.latencies(log_business, held=held)
            kind = "held" if held else "not held"
            times = f"p50 {percentile(seconds, 50) * 1000:.1f} ms, max {max(seconds) * 1000:.1f} ms"
            parts.append(f"{len(seconds)} of transactions {kind}: {times}")
        return "; ".join(parts)


@asynccontextmanager
async def reading(engine: AsyncEngine, watch: Watch, *, transactional: bool) -> AsyncIterator[None]:
    """A reader with an outbox of its own, for the length of the block."""

    async def plainly(message: OutboxMessage) -> None:
        watch.note(message.payload)

    async def with_effect(message: OutboxMessage, session: AsyncSession) -> None:
        name, version = watch.note(message.payload)
        insert = text("insert into effects (name, version, pid) values (:name, :version, 0)")
        await session.execute(insert, {"name": name, "version": version})

    outbox = Outbox(engine, tables=log_tables())
    handler: Any = with_effect if transactional else plainly
    stop = asyncio.Event()
    running = asyncio.create_task(outbox.run(handler, watch.name, stop_event=stop, transactional=transactional))
    try:
        yield
    finally:
        stop.set()
        await running
        await outbox.cleanup()


@asynccontextmanager
async def reading_by_xid(world: str, watch: Watch) -> AsyncIterator[None]:
    """Reads in the order of (transaction_id, position) what lies below every transaction in progress."""
    sql = f"""
        select transaction_id, position, payload->>'name' as name, (payload->>'version')::int as version from {LOG}
        where (transaction_id, position) > ($1, $2)
          and transaction_id < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        order by transaction_id, position limit 1000
    """

    async def read() -> None:
        connection = await asyncpg.connect(world)
        place = (0, 0)
        try:
            while True:
                for row in await connection.fetch(sql, *place):
                    watch.note(row)
                    place = (row["transaction_id"], row["position"])
                await asyncio.sleep(0.01)
        finally:
            connection.terminate()

    running = asyncio.create_task(read())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def stress(
    engine: AsyncEngine, database_url: URL, scene: LogScene, log_business: LogBusiness, *, seconds: float
) -> tuple[Watch, Watch]:
    """Let writers write and readers read for so long, and all readers finish; gives the plain and transactional one."""
    plain, transactional, by_xid = (Watch(name) for name in ("plain", "transactional", "by transaction id"))

    def is_read(*watches: Watch) -> bool:
        return all(len(watch.at) >= len(log_business.commits) for watch in watches)

    async with (
        reading(engine, plain, transactional=False),
        reading(engine, transactional, transactional=True),
        reading_by_xid(scene.world, by_xid),
    ):
        with idle_writer(database_url):
            await log_business.publish_with(WRITERS, Manner(), seconds)
            await eventually(lambda: is_read(plain, transactional), message="both readers have read everything")
            stalled = len(log_business.commits) - len(by_xid.at)
        await eventually(lambda: is_read(by_xid), message="the reader by transaction id has read everything")
    other = log_account(scene.versions(), by_xid.seen)
    print(
        f"by transaction id: {stalled} of {len(log_business.commits)} not read while the foreign transaction was open"
    )
    print(by_xid.report(log_business), f"order broken {len(other.disordered)}", sep="; ")
    return plain, transactional


def check(scene: LogScene, log_business: LogBusiness, plain: Watch, transactional: Watch, record: Any) -> None:
    versions = scene.versions()
    for watch, done in ((plain, plain.seen), (transactional, scene.effects())):
        account = log_account(versions, done)
        print(watch.report(log_business), account, sep="; ")
        seconds = watch.latencies(log_business, held=False)
        record(f"{watch.name}_latency_p50_ms", round(percentile(seconds, 50) * 1000, 1))
        record(f"{watch.name}_latency_max_ms", round(max(seconds) * 1000, 1))
        assert not account.wrongs(), watch.name
        assert max(seconds) < SOON, watch.name
    assert scene.ask("select * from reversals") == []


async def test_nothing_is_lost_twice_late_or_out_of_order_under_long_and_foreign_transactions(
    engine: AsyncEngine,
    database_url: URL,
    log_scene: LogScene,
    log_business: LogBusiness,
    record_property: Any,
) -> None:
    watches = await stress(engine, database_url, log_scene, log_business, seconds=6.0)
    check(log_scene, log_business, *watches, record_property)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_nothing_is_lost_twice_late_or_out_of_order_in_three_minutes_of_it(
    engine: AsyncEngine,
    database_url: URL,
    log_scene: LogScene,
    log_business: LogBusiness,
    record_property: Any,
) -> None:
    watches = await stress(engine, database_url, log_scene, log_business, seconds=180.0)
    check(log_scene, log_business, *watches, record_property)
