"""A handler may keep the transaction open in which it settles; nobody else waits for it, and nobody is misled."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.outcomes.outcome import DONE, SETTLED, Outcome
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.faults.child import EFFECTS, PLAIN
from tests.faults.scene import Scene

pytestmark = pytest.mark.faults

LEASE = 1.5
"""Renewed every half second."""


class Stage:
    """Two workers of one client: one settles within its own transaction, slowly, the other is quick."""

    def __init__(self, engine: AsyncEngine) -> None:
        metadata = MetaData()
        self.engine = engine
        self.table: Table = make_outbox_table(metadata)
        self.client = OutboxClient(engine, self.table, dlq_table=make_dlq_table(metadata))
        self.sessions = async_sessionmaker(engine)
        self.settled_within = asyncio.Event()
        self.may_commit = asyncio.Event()
        self.committed = asyncio.Event()
        self.may_return = asyncio.Event()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.client.events.subscribe(self.events.put_nowait, events.Handled, events.LeaseWasLost)
        options = {"client": self.client, "lease_ttl_seconds": LEASE}
        self.workers = [
            Worker(engine, self.table, EFFECTS, self.handle_slowly, on_lease_lost="cancel", **options),
            Worker(engine, self.table, PLAIN, self.handle, **options),
        ]

    async def handle(self, claim: Claim) -> Outcome:
        return DONE

    async def handle_slowly(self, claim: Claim) -> Outcome:
        async with self.sessions.begin() as session:
            await self.client.settle_within(session, claim)
            self.settled_within.set()
            await self.may_commit.wait()
        self.committed.set()
        await self.may_return.wait()
        return SETTLED

    async def publish(self, queue: str) -> None:
        async with self.sessions.begin() as session:
            await publish(session, self.table, Envelope(queue=queue, body=b"1"), wakeups=self.client.wakeups)

    async def outcome_of_a_quick_one(self) -> Any:
        await self.publish(PLAIN)
        async with asyncio.timeout(30):
            while (event := await self.events.get()).queue != PLAIN:
                pass
        return event


@pytest.fixture
async def stage(scene: Scene, engine: AsyncEngine) -> AsyncIterator[Stage]:
    stage = Stage(engine)
    await asyncio.gather(*(worker.start() for worker in stage.workers))
    await stage.publish(EFFECTS)
    await stage.settled_within.wait()
    yield stage
    stage.may_commit.set()
    stage.may_return.set()
    await asyncio.gather(*(worker.stop() for worker in stage.workers))


async def test_other_outcomes_are_written_while_a_handler_keeps_its_transaction_open(stage: Stage) -> None:
    # Longer than a lease: several renewals meet the locked row.
    await asyncio.sleep(1.5 * LEASE)
    assert isinstance(await stage.outcome_of_a_quick_one(), events.Handled)


async def test_message_settled_in_a_long_transaction_is_handled_and_not_lost(stage: Stage) -> None:
    await asyncio.sleep(1.5 * LEASE)
    stage.may_commit.set()
    stage.may_return.set()
    async with asyncio.timeout(30):
        event = await stage.events.get()
    assert isinstance(event, events.Handled)


async def test_handler_that_goes_on_after_its_commit_has_not_lost_its_lease(stage: Stage) -> None:
    stage.may_commit.set()
    await stage.committed.wait()
    await asyncio.sleep(1.5 * LEASE)
    stage.may_return.set()
    async with asyncio.timeout(30):
        event = await stage.events.get()
    assert isinstance(event, events.Handled)


async def test_nobody_else_gets_a_message_that_is_being_settled(stage: Stage, scene: Scene) -> None:
    rival = OutboxClient(stage.engine, stage.table)
    taken: list[Claim] = []

    async def take(claim: Claim) -> Outcome:
        taken.append(claim)
        return DONE

    worker = Worker(
        stage.engine, stage.table, EFFECTS, take, client=rival, min_fetch_interval=0.1, lease_ttl_seconds=LEASE
    )
    await worker.start()
    await asyncio.sleep(1.5 * LEASE)
    stage.may_commit.set()
    stage.may_return.set()
    async with asyncio.timeout(30):
        await stage.events.get()
    await worker.stop()
    assert (taken, scene.left()) == ([], 0)
