"""Transactional handlers above READ COMMITTED: effects exactly once, also of handlers longer than their lease."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import ConstantRetry, NoRetry, OutboxBroker, events
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.queue import Claim, OutboxClient
from tests.broker.effects import EffectsShop
from tests.queue.witness import Witness
from tests.waiting import eventually

LEASE = 2.0


@pytest.fixture(params=["asyncpg", "psycopg"])
async def strict_engine(request: pytest.FixtureRequest, database_url: URL, level: str) -> AsyncIterator[AsyncEngine]:
    """An engine of that isolation level, on each of the drivers in turn."""
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, isolation_level=level)
    yield engine
    await engine.dispose()


@pytest.fixture
async def shop(
    strict_engine: AsyncEngine, table: Table, dlq_table: Table, effects: Table
) -> AsyncIterator[EffectsShop]:
    shop = EffectsShop(strict_engine, (table, dlq_table), effects)
    yield shop
    await shop.broker.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "batch"),
    [("READ COMMITTED", False), ("REPEATABLE READ", False), ("REPEATABLE READ", True), ("SERIALIZABLE", True)],
)
async def test_a_handler_longer_than_its_lease_runs_once(shop: EffectsShop, *, batch: bool) -> None:
    calls: list[object] = []
    brokers = [shop.broker, OutboxBroker(shop.engine, outbox_table=shop.outbox, dlq_table=shop.dlq, logger=None)]
    witness = Witness()
    for broker in brokers:
        broker.client.events.subscribe(witness)

        @broker.subscriber(
            "orders",
            transactional=True,
            batch=batch,
            lease_ttl_seconds=LEASE,
            min_fetch_interval=0.05,
            max_fetch_interval=0.05,
            retry_strategy=ConstantRetry(delay_seconds=0.05, max_attempts=3),
        )
        async def handle(body: list[int] | int, session: OutboxSession) -> None:
            calls.append(body)
            await shop.write(session, body[0] if isinstance(body, Sequence) else body)
            await asyncio.sleep(1.3 * LEASE)

    await shop.publish(1)
    for broker in brokers:
        await broker.start()
    try:
        await eventually(lambda: calls, timeout=20)
        await shop.becomes(effects=[1])
        # A process that stands still for as long as its lease lasts does lose it.
        assert len(calls) <= 1 + len(witness.of(events.LeaseWasLost))
    finally:
        await brokers[1].stop()


@pytest.mark.parametrize("level", ["REPEATABLE READ"])
async def test_a_failed_attempt_is_counted(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True, retry_strategy=ConstantRetry(delay_seconds=1000))
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        raise ValueError

    await shop.deliver(1)
    await shop.failed()


@pytest.mark.parametrize("level", ["REPEATABLE READ"])
async def test_a_lease_that_is_gone_is_noticed_before_the_handler_runs(
    shop: EffectsShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    begun = asyncio.Event()
    begin = OutboxClient.begin_within

    async def begin_late(client: OutboxClient, session: AsyncSession, *claims: Claim) -> None:
        await shop.sql(f"update {shop.outbox.name} set acquired_token = gen_random_uuid(), acquired_at = now()")
        begun.set()
        await begin(client, session, *claims)

    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        calls.append(body)

    monkeypatch.setattr(OutboxClient, "begin_within", begin_late)
    await shop.deliver(1)
    await begun.wait()
    await shop.broker.stop()
    assert calls == []


@pytest.mark.parametrize("level", ["REPEATABLE READ"])
async def test_a_renewal_in_between_makes_it_begin_again(shop: EffectsShop, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[int] = []
    lock = OutboxClient.lock_within

    async def lock_late(client: OutboxClient, session: AsyncSession, *claims: Claim) -> None:
        if not renewed:
            renewed.append(1)
            await session.execute(text(f"select 1 from {shop.outbox.name}"))
            await shop.sql(f"update {shop.outbox.name} set acquired_at = clock_timestamp()")
        await lock(client, session, *claims)

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=NoRetry())
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)

    monkeypatch.setattr(OutboxClient, "lock_within", lock_late)
    await shop.deliver(1)
    await shop.becomes(effects=[1])
    assert renewed == [1]


@pytest.mark.parametrize("level", ["READ COMMITTED"])
async def test_the_level_is_asked_for_once_and_again_after_a_conflict(
    shop: EffectsShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    scalar = AsyncSession.scalar

    async def counted(session: AsyncSession, statement: Any, *rest: Any, **more: Any) -> Any:
        asked.append(str(statement))
        return await scalar(session, statement, *rest, **more)

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=ConstantRetry(delay_seconds=0.01))
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        if body == 3 and len(asked) == 1:
            await session.execute(text("do $$ begin raise exception using errcode = '40001'; end $$"))

    monkeypatch.setattr(AsyncSession, "scalar", counted)
    await shop.deliver(1, 2)
    await shop.becomes(effects=[1, 2])
    assert asked == ["show transaction_isolation"]
    await shop.publish(3)
    await shop.becomes(effects=[1, 2, 3])
    assert asked == ["show transaction_isolation"] * 2
