"""pgmq: its own SQL, installed without the extension from the client package, called through bare asyncpg.

`defaults` reads ten at a time, `tuned` a hundred; both delete what was read in one call. Each queue is a table of
its own, so other queues cannot be in the way.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
from contest import Contestant, OnMessage, serve
from pgmq.install import get_embedded_install_sql

PLAIN = '{"order_id": 12345, "amount": 99.5}'
BUSINESS = "insert into business (note) values ($1)"
READ = "select * from pgmq.read('orders', 60, $1)"
POLL = "select * from pgmq.read_with_poll('orders', 60, $1)"
DELETE = "select pgmq.delete('orders', $1::bigint[])"
SEND = "select pgmq.send('orders', $1::jsonb)"
SEND_MANY = "select pgmq.send_batch('orders', $1::jsonb[])"
SETTINGS = {"defaults": 10, "tuned": 100}


class Pgmq(Contestant):
    """pgmq."""

    packages = ("pgmq", "asyncpg")

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
            await connection.execute("drop schema if exists pgmq cascade")
            await connection.execute("create schema pgmq")
            await connection.execute(get_embedded_install_sql())
            await connection.execute("select pgmq.create('orders')")
            await connection.execute("drop table if exists business")
            await connection.execute("create table business (id bigserial primary key, note text)")
        await self.pool.expire_connections()

    async def backlog(self, messages: int, keys: int = 0) -> None:
        async with self.pool.acquire() as connection:
            for start in range(0, messages, 1000):
                await connection.execute(SEND_MANY, [PLAIN] * min(1000, messages - start))

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with self.pool.acquire() as connection:
            await connection.execute("delete from pgmq.q_orders")

    async def left(self) -> int:
        async with self.pool.acquire() as connection:
            return int(await connection.fetchval("select count(*) from pgmq.q_orders"))

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(self._consume(SETTINGS[settings], on_message, stop))
        yield
        stop.set()
        if isinstance(getattr(on_message, "messages", None), int):
            await running
            return
        # Waiting in the server for a message that does not come.
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def _consume(self, size: int, on_message: OnMessage, stop: asyncio.Event) -> None:
        connection = await asyncpg.connect(self.dsn)
        statement = READ
        try:
            while not stop.is_set():
                rows = await connection.fetch(statement, size)
                for row in rows:
                    on_message(json.loads(row["message"]))
                if rows:
                    await connection.execute(DELETE, [row["msg_id"] for row in rows])
                statement = READ if rows else POLL
        finally:
            connection.terminate()

    async def publish_single(self, how: str, messages: int) -> None:
        async with self.pool.acquire() as connection:
            for _ in range(messages):
                async with connection.transaction():
                    await connection.execute(BUSINESS, "order")
                    await connection.execute(SEND, PLAIN)

    async def publish_thousand(self, how: str, messages: int) -> None:
        async with self.pool.acquire() as connection:
            for _ in range(messages // 1000):
                async with connection.transaction():
                    await connection.execute(SEND_MANY, [PLAIN] * 1000)

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        async with self.pool.acquire() as connection:
            transaction: Any = connection.transaction()
            await transaction.start()
            await connection.execute(BUSINESS, "order")
            await connection.execute(SEND, json.dumps({"n": number}))
            committing()
            await transaction.commit()


if __name__ == "__main__":
    serve(Pgmq)
