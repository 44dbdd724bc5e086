"""`faststream-outbox` 0.19 from PyPI, which has the import name of this package: it must run in its own environment.

Tuned as its page on performance says: terminal flushes of many, larger fetches, its autovacuum settings, and no
access log.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from contest import BODY, Contestant, OnMessage, serve
from downstream import CONFIRM_SECONDS, Downstream
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from faststream_outbox import OutboxBroker, make_outbox_table, outbox_autovacuum_ddl

BUSINESS = text("insert into business (note) values (:note)")
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "quiet": ({"logger": None}, {}),
    "tuned": (
        {"logger": None},
        {"fetch_batch_size": 500, "terminal_flush_batch_size": 100, "min_fetch_interval": 0.01},
    ),
    "workers": ({"logger": None}, {"fetch_batch_size": 500, "max_workers": 4}),
}


class Outbox19(Contestant):
    """faststream-outbox 0.19."""

    packages = ("faststream-outbox", "faststream", "sqlalchemy", "asyncpg", "nats-py")

    async def open(self) -> None:
        self.engine = create_async_engine(self.dsn, pool_size=20, max_overflow=200)
        self.sessions = async_sessionmaker(self.engine)
        self.metadata = MetaData()
        self.table = make_outbox_table(self.metadata)
        self.publishes = OutboxBroker(self.engine, outbox_table=self.table)
        # Its publish reads a context that only a started broker has; without subscribers, that is all it starts.
        await self.publishes.start()

    async def rest(self) -> None:
        await self.engine.dispose()

    async def reset(self) -> None:
        async with self.engine.begin() as connection:
            await connection.run_sync(self.metadata.drop_all)
            await connection.run_sync(self.metadata.create_all)
            await connection.execute(text(outbox_autovacuum_ddl()))
            await connection.execute(text("drop table if exists business"))
            await connection.execute(text("create table business (id bigserial primary key, note text)"))

    async def backlog(self, messages: int, keys: int = 0) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into outbox (queue, payload, headers) "
                    "select 'orders', :payload, cast(:headers as jsonb) from generate_series(1, :rows)"
                ),
                {
                    "payload": b'{"order_id": 12345, "amount": 99.5}',
                    "headers": '{"content-type": "application/json", "correlation_id": "c"}',
                    "rows": messages,
                },
            )

    async def others(self, rows: int) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into outbox (queue, payload, next_attempt_at) "
                    "select 'other' || (i % 50), '{}', now() + interval '1 day' from generate_series(1, :rows) i"
                ),
                {"rows": rows},
            )

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with self.engine.begin() as connection:
            await connection.execute(text("delete from outbox"))

    async def left(self) -> int:
        async with self.engine.connect() as connection:
            found = await connection.execute(text("select count(*) from outbox where queue = 'orders'"))
            return int(found.scalar_one())

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        of_broker, of_subscriber = SETTINGS[settings]
        broker = OutboxBroker(self.engine, outbox_table=self.table, **of_broker)
        count = {} if workers is None else {"max_workers": workers}

        @broker.subscriber("orders", **(of_subscriber | count))
        async def handle(body: dict[str, Any]) -> None:
            if sleep:
                await asyncio.sleep(sleep)
            on_message(body)

        await broker.start()
        yield
        await broker.stop()

    @contextlib.asynccontextmanager
    async def relay(self, settings: str, behind: Downstream, *, workers: int | None = None) -> AsyncIterator[None]:
        of_broker, of_subscriber = SETTINGS[settings]
        broker, nats = OutboxBroker(self.engine, outbox_table=self.table, **of_broker), behind.broker
        # FastStream's half a second is too short for a stream that a backlog comes to.
        publisher = nats.publisher(behind.subject, stream=behind.stream, timeout=CONFIRM_SECONDS)
        count = {} if workers is None else {"max_workers": workers}

        @publisher
        @broker.subscriber("orders", **(of_subscriber | count))
        async def hand_on(body: dict[str, Any]) -> dict[str, Any]:
            return body

        await nats.start()
        await broker.start()
        yield
        await broker.stop()

    async def publish_single(self, how: str, messages: int) -> None:
        for _ in range(messages):
            async with self.sessions() as session, session.begin():
                await session.execute(BUSINESS, {"note": "order"})
                await self.publishes.publish(BODY, queue="orders", session=session)

    async def publish_thousand(self, how: str, messages: int) -> None:
        for _ in range(messages // 1000):
            async with self.sessions() as session, session.begin():
                await self.publishes.publish_batch(*[BODY] * 1000, queue="orders", session=session)

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        async with AsyncSession(self.engine) as session:
            await session.execute(BUSINESS, {"note": "order"})
            await self.publishes.publish({"n": number}, queue="orders", session=session)
            committing()
            await session.commit()

    async def publish_timers(self, due: list[float]) -> None:
        async with self.sessions() as session, session.begin():
            for number, at in enumerate(due):
                when = datetime.fromtimestamp(at, UTC)
                await self.publishes.publish({"n": number}, queue="orders", session=session, activate_at=when)


if __name__ == "__main__":
    serve(Outbox19)
