"""Ten writers over twenty aggregates, long transactions and rollbacks, and a foreign transaction that never ends.

Each writer locks an aggregate, publishes its next version, and stays open for up to a second; one in ten rolls
back. A transaction that has written stays idle in another database of the cluster for the whole run. Two readers
side by side: plain and transactional.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.log_account import Event, log_account, percentile
from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_scene import LogScene, idle_writer, log_tables
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


async def test_nothing_is_lost_twice_late_or_out_of_order_under_long_and_foreign_transactions(
    engine: AsyncEngine, database_url: URL, log_scene: LogScene, log_business: LogBusiness, record_property: Any
) -> None:
    plain, transactional = Watch("plain"), Watch("transactional")

    async with reading(engine, plain, transactional=False), reading(engine, transactional, transactional=True):
        with idle_writer(database_url):
            await log_business.publish_with(WRITERS, Manner(), 6.0)
            await eventually(
                lambda: all(len(watch.at) >= len(log_business.commits) for watch in (plain, transactional)),
                message="both readers have read everything",
            )
    for watch, done in ((plain, plain.seen), (transactional, log_scene.effects())):
        account = log_account(log_scene.versions(), done)
        print(watch.report(log_business), account, sep="; ")
        seconds = watch.latencies(log_business, held=False)
        record_property(f"{watch.name}_latency_p50_ms", round(percentile(seconds, 50) * 1000, 1))
        record_property(f"{watch.name}_latency_max_ms", round(max(seconds) * 1000, 1))
        assert not account.wrongs(), watch.name
        assert max(seconds) < SOON, watch.name
    assert log_scene.ask("select * from reversals") == []
