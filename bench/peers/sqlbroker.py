"""faststream-sqlbroker, another broker on SQL for FastStream. It polls, and has no defaults for how often.

`defaults` are the values of its README but for the interval of fetches and flushes, at which it would handle ten
messages a second. `tuned`: large fetches, no pause between them, short flushes, no archive table.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from contest import BODY, Contestant, OnMessage, serve
from faststream_sqlbroker import SqlBroker, SqlBrokerSchemaConfig
from faststream_sqlbroker.sqlbroker.schema import SqlBrokerSchemaType, define_sqlbroker_schema
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

BUSINESS = text("insert into business (note) values (:note)")
SCHEMA = SqlBrokerSchemaConfig(message_archive_table_name=None)
NO_ARCHIVE: dict[str, Any] = {"retain_in_archive_on_ack": False, "retain_in_archive_on_reject": False}
FAST: dict[str, Any] = {
    "fetch_batch_size": 1000,
    "max_fetch_interval": 0.05,
    "min_fetch_interval": 0.0,
    "flush_interval": 0.02,
} | NO_ARCHIVE
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {"fetch_batch_size": 10, "max_fetch_interval": 1.0, "min_fetch_interval": 0.0, "flush_interval": 0.02}
    | NO_ARCHIVE,
    "tuned": FAST,
    "batch": FAST | {"batch": True, "batch_max_records": 1000},
}


class Sqlbroker(Contestant):
    """faststream-sqlbroker."""

    packages = ("faststream-sqlbroker", "faststream", "sqlalchemy", "asyncpg")

    def _engine(self) -> AsyncEngine:
        return create_async_engine(self.dsn, pool_size=20, max_overflow=200)

    async def open(self) -> None:
        self.engine = self._engine()
        made = define_sqlbroker_schema(config=SCHEMA).get_table(SqlBrokerSchemaType.MESSAGE)
        assert made is not None
        self.table = made
        self.publishes: SqlBroker | None = None

    async def rest(self) -> None:
        await self.engine.dispose()

    async def reset(self) -> None:
        async with self.engine.begin() as connection:
            await connection.run_sync(self.table.metadata.drop_all)
            await connection.run_sync(self.table.metadata.create_all)
            await connection.execute(text("drop table if exists business"))
            await connection.execute(text("create table business (id bigserial primary key, note text)"))
        if self.publishes is None:
            self.publishes = SqlBroker(engine=self.engine, schema=SCHEMA)
            await self.publishes.start()

    async def backlog(self, messages: int, keys: int = 0) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into message (queue, headers, payload, state, attempts_count, deliveries_count, "
                    "created_at, next_attempt_at) select 'orders', cast(:headers as json), :payload, 'PENDING', 0, 0, "
                    "now() at time zone 'utc', now() at time zone 'utc' from generate_series(1, :rows)"
                ),
                {
                    "payload": b'{"order_id": 12345, "amount": 99.5}',
                    "headers": '{"content-type": "application/json"}',
                    "rows": messages,
                },
            )

    async def others(self, rows: int) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    "insert into message (queue, payload, state, attempts_count, deliveries_count, created_at, "
                    "next_attempt_at) select 'other' || (i % 50), '{}', 'PENDING', 0, 0, now(), "
                    "now() + interval '1 day' from generate_series(1, :rows) i"
                ),
                {"rows": rows},
            )

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with self.engine.begin() as connection:
            await connection.execute(text("delete from message"))

    async def left(self) -> int:
        async with self.engine.connect() as connection:
            found = await connection.execute(text("select count(*) from message where queue = 'orders'"))
            return int(found.scalar_one())

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: Any, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        # It closes the engine that it was given when it stops, so it gets one of its own.
        options = SETTINGS[settings] | ({} if workers is None else {"max_workers": workers})
        broker = SqlBroker(engine=self._engine(), schema=SCHEMA, logger=None)
        subscriber = broker.subscriber(["orders"], **options)
        if options.get("batch"):

            @subscriber
            async def handle_batch(bodies: list[dict[str, Any]]) -> None:
                on_message.many(len(bodies))

        else:
            self._each(subscriber, on_message, sleep)
        await broker.start()
        yield
        await broker.stop()

    def _each(self, subscriber: Any, on_message: OnMessage, sleep: float) -> None:
        @subscriber
        async def handle(body: dict[str, Any]) -> None:
            if sleep:
                await asyncio.sleep(sleep)
            on_message(body)

    async def publish_single(self, how: str, messages: int) -> None:
        assert self.publishes is not None
        for _ in range(messages):
            async with self.engine.begin() as connection:
                await connection.execute(BUSINESS, {"note": "order"})
                await self.publishes.publish(BODY, "orders", connection=connection)

    async def publish_thousand(self, how: str, messages: int) -> None:
        assert self.publishes is not None
        for _ in range(messages // 1000):
            async with self.engine.begin() as connection:
                await self.publishes.publish_batch(*[BODY] * 1000, queue="orders", connection=connection)

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        assert self.publishes is not None
        async with self.engine.connect() as connection:
            await connection.execute(BUSINESS, {"note": "order"})
            await self.publishes.publish({"n": number}, "orders", connection=connection)
            committing()
            await connection.commit()

    async def publish_timers(self, due: list[float]) -> None:
        assert self.publishes is not None
        async with self.engine.begin() as connection:
            for number, at in enumerate(due):
                when = datetime.fromtimestamp(at, UTC)
                await self.publishes.publish({"n": number}, "orders", connection=connection, next_attempt_at=when)


if __name__ == "__main__":
    serve(Sqlbroker)
