"""The workers of queues: one that handles, in batches too, and two whose handlers take the transaction.

The dead letters of one of these are replayed by an operator: what is poison there works now and then.
"""

import asyncio
import os
import random
from typing import Any
from uuid import UUID

from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage, OutboxSession
from tests.faults.machine.history import Pen
from tests.faults.machine.part import Part
from tests.faults.machine.roles.application import Application
from tests.faults.machine.roles.producer import record
from tests.faults.machine.roles.run import (
    BROKEN,
    DEAD,
    RETRY,
    RETRY_SECONDS,
    effect,
    finished,
    run,
    started,
    verdict,
)
from tests.faults.machine.stage import BULK, EXACT, MARK, ORDERS, REVIVED, TIMERS, Tables

FOLLOWED = 0.1
"""The share of messages of transactional workers that publish another one."""
CURED = 0.15
"""The share of runs in which poison works, where dead letters are replayed: two of five live to see it."""


class Queues(Application):
    """An application that reads queues."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen, Tables(), **part.broker)


class Worker(Queues):
    """Handles outside of a transaction."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self.broker.subscriber([ORDERS, TIMERS], max_workers=8, **self.options)(self.handle)
        self.broker.subscriber(BULK, batch=True, batch_size=20, batch_wait=0.05, **self.options)(self.handle_many)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage) -> None:
        async with run(self.pen, body["place"], body, msg.raw_message):
            pass

    async def handle_many(self, bodies: list[dict[str, Any]], batch: OutboxBatchMessage) -> None:
        claims = [msg.raw_message for msg in batch.messages]
        runs = [started(self.pen, BULK, body, claim) for body, claim in zip(bodies, claims, strict=True)]
        outcomes = [BROKEN] * len(runs)
        try:
            await asyncio.sleep(max(body["seconds"] for body in bodies))
            outcomes = [verdict(body, claim.attempts_count + 1) for body, claim in zip(bodies, claims, strict=True)]
            for outcome, msg in zip(outcomes, batch.messages, strict=True):
                if outcome == RETRY:
                    await msg.nack(RETRY_SECONDS)
                elif outcome == DEAD:
                    await msg.reject()
        finally:
            for number, outcome in zip(runs, outcomes, strict=True):
                finished(self.pen, BULK, number, outcome)


class TransactionalWorker(Queues):
    """Handles in the transaction that settles."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self._chance = random.Random(part.seed)
        self.broker.subscriber(EXACT, max_workers=6, transactional=True, **self.options)(self.handle)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage, session: OutboxSession) -> None:
        async with run(self.pen, EXACT, body, msg.raw_message):
            await effect(session, EXACT, body, os.getpid())
            if self._chance.random() < FOLLOWED:
                await self._follow(session, body)

    async def _follow(self, session: Any, parent: dict[str, Any]) -> None:
        name = UUID(int=self._chance.getrandbits(128), version=4)
        body = {**parent, "id": str(name), "place": ORDERS, "key": None, "version": None, "poison": False, "fails": 0}
        body["seconds"] = 0.0
        await record(session, body, parent=parent["id"])
        # No session: it joins the handler's transaction.
        await self.broker.publish(body, ORDERS, headers={MARK: str(name)}, message_id=name)


class RevivedWorker(Queues):
    """Handles in the transaction that settles; whether poison is poison depends on the day."""

    def __init__(self, part: Part, pen: Pen) -> None:
        super().__init__(part, pen)
        self._chance = random.Random(part.seed)
        self.broker.subscriber(REVIVED, max_workers=4, transactional=True, **self.options)(self.handle)

    async def handle(self, body: dict[str, Any], msg: OutboxMessage, session: OutboxSession) -> None:
        is_cured = body["poison"] and self._chance.random() < CURED
        today = {**body, "poison": False, "fails": 0} if is_cured else body
        async with run(self.pen, REVIVED, today, msg.raw_message):
            await effect(session, REVIVED, body, os.getpid())
