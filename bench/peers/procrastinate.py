"""Procrastinate, with psycopg 3 and jobs that are deleted when they are done.

`tuned` runs many jobs at once in one worker, its only means to overlap their statements.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg
from contest import BODY, Contestant, OnMessage, serve

BUSINESS = "insert into business (note) values (%s)"
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "tuned": {"concurrency": 20, "delete_jobs": "always"},
}


class Procrastinate(Contestant):
    """Procrastinate."""

    packages = ("procrastinate", "psycopg")

    async def open(self) -> None:
        self.dsn = self.dsn.replace("+asyncpg", "")
        self.sleep = 0.0
        self.publishes: psycopg.AsyncConnection[Any] | None = None
        self.on_message: OnMessage = print
        self.app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=self.dsn, min_size=4, max_size=40)
        )
        await self.app.open_async()

        @self.app.task(queue="orders", name="orders")
        async def handle(**body: Any) -> None:
            if self.sleep:
                await asyncio.sleep(self.sleep)
            self.on_message(body)

        self.task = handle

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self.dsn)

    async def rest(self) -> None:
        await self.app.close_async()
        await self.app.open_async()

    async def reset(self) -> None:
        if self.publishes is not None:
            # It knows types of the schema that goes.
            await self.publishes.close()
            self.publishes = None
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await connection.execute("drop schema public cascade")
            await connection.execute("create schema public")
            await connection.execute("create table business (id bigserial primary key, note text)")
        await self.app.close_async()
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()

    async def backlog(self, messages: int, keys: int = 0) -> None:
        for start in range(0, messages, 1000):
            await self.task.batch_defer_async(*[dict(BODY)] * min(1000, messages - start))

    async def others(self, rows: int) -> None:
        async with await self._connect() as connection:
            await connection.execute("set session_replication_role = replica")  # leaves out its event triggers
            await connection.execute(
                "insert into procrastinate_jobs (queue_name, task_name, scheduled_at) "
                "select 'other' || (i %% 50), 'other', now() + interval '1 day' from generate_series(1, %s) i",
                (rows,),
            )

    async def churn(self, rows: int) -> None:
        await self.backlog(rows)
        async with await self._connect() as connection:
            await connection.execute("delete from procrastinate_jobs")

    async def left(self) -> int:
        async with await self._connect() as connection:
            found = await connection.execute(
                "select count(*) from procrastinate_jobs where queue_name = 'orders' and status in ('todo', 'doing')"
            )
            row = await found.fetchone()
            return int(row[0]) if row else 0

    @contextlib.asynccontextmanager
    async def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> AsyncIterator[None]:
        self.on_message, self.sleep = on_message, sleep
        options = SETTINGS[settings] | ({} if workers is None else {"concurrency": workers})
        running = asyncio.create_task(
            self.app.run_worker_async(queues=["orders"], install_signal_handlers=False, **options)
        )
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def publish_single(self, how: str, messages: int) -> None:
        async with await self._connect() as connection:
            task = self.task.configure(connection=connection)
            for _ in range(messages):
                async with connection.transaction():
                    await connection.execute(BUSINESS, ("order",))
                    await task.defer_async(**BODY)

    async def publish_thousand(self, how: str, messages: int) -> None:
        async with await self._connect() as connection:
            task = self.task.configure(connection=connection)
            for _ in range(messages // 1000):
                async with connection.transaction():
                    await task.batch_defer_async(*[dict(BODY)] * 1000)

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        if self.publishes is None:
            self.publishes = await self._connect()
        await self.publishes.execute(BUSINESS, ("order",))
        await self.task.configure(connection=self.publishes).defer_async(n=number)
        committing()
        await self.publishes.commit()

    async def publish_timers(self, due: list[float]) -> None:
        async with await self._connect() as connection:
            for number, at in enumerate(due):
                when = datetime.fromtimestamp(at, UTC)
                await self.task.configure(connection=connection, schedule_at=when).defer_async(n=number)


if __name__ == "__main__":
    serve(Procrastinate)
