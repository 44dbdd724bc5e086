"""Brokers that come and go, handlers and commits that fail at random: every effect once, in the order of its key."""

import asyncio
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox.annotations import OutboxSession
from tests.broker.topics.stage import Stage

KEYS, ROUNDS = 24, 15
RETRY = ConstantRetry(delay_seconds=0.02)


class Storm:
    """Handlers that fail by chance, and what they found out of order."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.random = Random(1)
        self.disorder: list[Any] = []

    async def take(self, session: AsyncSession, key: int, number: int) -> None:
        """Write the effect of a message; it must be the next one of its key."""
        asked = text("select count(*) from effects where number / 1000 = :key")
        found = (await session.execute(asked, {"key": key})).scalar_one()
        if found != number:
            self.disorder.append((key, number, found))
        await self.stage.write(session, key * 1000 + number)
        if self.random.random() < 0.04:
            raise ValueError("the handler fails")
        if self.random.random() < 0.04:

            async def broken() -> None:
                raise ValueError("the commit fails")

            session.commit = broken  # type: ignore[method-assign]

    def broker(self, *, batch: bool) -> OutboxBroker:
        """A member of the group."""
        broker = self.stage.another()
        subscriber = broker.subscriber(
            topic="orders",
            group="billing",
            max_workers=2,
            transactional=True,
            batch=batch,
            batch_size=7 if batch else None,
            retry_strategy=RETRY,
        )

        async def one(body: tuple[int, int], session: OutboxSession) -> None:
            await self.take(session, *body)

        async def many(bodies: list[tuple[int, int]], session: OutboxSession) -> None:
            for body in bodies:
                await self.take(session, *body)

        subscriber(many if batch else one)
        return broker


@pytest.mark.slow
@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "batches"])
async def test_every_effect_happens_once_in_the_order_of_its_key(stage: Stage, batch: bool) -> None:
    storm = Storm(stage)
    brokers = [storm.broker(batch=batch) for _ in range(3)]
    keys = [str(key) for key in range(KEYS)]

    async def publish() -> None:
        for number in range(ROUNDS):
            await stage.publish(*[[key, number] for key in range(KEYS)], keys=keys)
            await asyncio.sleep(0.02)

    await brokers[0].start()
    publishing = asyncio.create_task(publish())
    while not publishing.done():
        one = storm.random.choice(brokers)
        await (one.stop() if one.running else one.start())
        await asyncio.sleep(storm.random.uniform(0.02, 0.15))
    await publishing
    for broker in brokers:
        await broker.start()
    expected = sorted(key * 1000 + number for key in range(KEYS) for number in range(ROUNDS))
    await stage.wrote(*expected, timeout=150.0)
    assert storm.disorder == []
    await stage.caught_up()
