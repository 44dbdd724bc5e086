"""PgQueuer, as its page on tuning says: a connection of its own for the queue, its autovacuum settings, uvloop.

`tuned` raises the batch size, which also is how many finished jobs are written at once.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import asyncpg
from contest import Contestant, OnMessage, serve
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

PLAIN = b'{"order_id": 12345, "amount": 99.5}'
BUSINESS = "insert into business (note) values ($1)"
SETTINGS: dict[str, dict[str, Any]] = {"defaults": {}, "tuned": {"batch_size": 500}}


class Pgqueuer(Contestant):
    """PgQueuer."""

    packages = ("pgqueuer", "asyncpg", "uvloop")
    uvloop = True

    async def open(self) -> None:
        self.dsn = self.dsn.replace("+asyncpg", "")
        await self._connect()

    async def _connect(self) -> None:
        pool = await asyncpg.create_pool(self.dsn, min_size=1, max_size=20)
        assert pool is not None
        self.pool = pool

    async def rest(self) -> None:
        await self.pool.close()
        await self._connect()

    async def reset(self) -> None:
        async with self.pool.acquire() as connection:
            queries = Queries(AsyncpgDriver(connection))
            if await queries.schema_is_installed():
                await queries.uninstall()
            await queries.install()
            await queries.optimize_autovacuum()
            await connection.execute("drop table if exists business")
            await connection.execute("create table business (id bigserial primary key, note text)")
        await self.pool.expire_connections()

    async def backlog(self, messages: int, keys: int = 0) -> None:
        async with self.pool.acquire() as connection:
            await self._enqueue(connection, messages)

    async def _enqueue(self, connection: Any, messages: int) -> None:
        for start in range(0, messages, 1000):
            size = min(1000, messages - start)
            await Queries(AsyncpgDriver(connection)).enqueue(["orders"] * size, [PLAIN] * size, [0] * size)

    async def others(self, rows: int) -> None:
        async with self.pool.acquire() as connection:
            await connection.execute(
                "insert into pgqueuer (priority, entrypoint, payload, status, execute_after) "
                "select 0, 'other' || (i % 50), '{}', 'queued', now() + interval '1 day' "
                "from generate_series(1, $1::int) i",
                rows,
            )

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with self.pool.acquire() as connection:
            await connection.execute("delete from pgqueuer")

    async def left(self) -> int:
        async with self.pool.acquire() as connection:
            return int(await connection.fetchval("select count(*) from pgqueuer where entrypoint = 'orders'"))

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self.dsn)
        queuer = PgQueuer(AsyncpgDriver(connection))

        @queuer.entrypoint("orders")
        async def handle(job: Job) -> None:
            if sleep:
                await asyncio.sleep(sleep)
            on_message(json.loads(job.payload or b""))

        # At least twice the batch size, which it insists on.
        limits = {} if workers is None else {"batch_size": workers // 2, "max_concurrent_tasks": workers}
        running = asyncio.create_task(queuer.run(**(SETTINGS[settings] | limits)))
        yield
        queuer.shutdown.set()
        await running
        await connection.close()

    async def publish_single(self, how: str, messages: int) -> None:
        async with self.pool.acquire() as connection:
            queries = Queries(AsyncpgDriver(connection))
            for _ in range(messages):
                async with connection.transaction():
                    await connection.execute(BUSINESS, "order")
                    await queries.enqueue("orders", PLAIN)

    async def publish_thousand(self, how: str, messages: int) -> None:
        async with self.pool.acquire() as connection:
            for _ in range(messages // 1000):
                async with connection.transaction():
                    await self._enqueue(connection, 1000)

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        async with self.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(BUSINESS, "order")
            await Queries(AsyncpgDriver(connection)).enqueue("orders", b'{"n": %d}' % number)
            committing()
            await transaction.commit()

    async def publish_timers(self, due: list[float]) -> None:
        async with self.pool.acquire() as connection:
            now = time.time()
            await Queries(AsyncpgDriver(connection)).enqueue(
                ["orders"] * len(due),
                [b'{"n": %d}' % number for number in range(len(due))],
                [0] * len(due),
                [timedelta(seconds=at - now) for at in due],
            )


if __name__ == "__main__":
    serve(Pgqueuer)
