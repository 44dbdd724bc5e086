"""Transactional handlers of every way out, far from the server: behind a proxy that can lose answers.

Each handler writes one row per message in its own transaction. What is committed is looked at from near the server.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import MetaData, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox._internal.schema.log_tables import make_log_tables
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.faults.proxy import Proxy
from tests.waiting import eventually

WAYS = ("queue", "queue_batch", "topic", "topic_batch", "run")
OFTEN = ConstantRetry(delay_seconds=0.02, max_attempts=100_000)
STANDSTILL = 30.0


@dataclass
class Trial:
    """Subscribers behind the proxy, and the business in front of it."""

    near: AsyncEngine
    far: AsyncEngine
    proxy: Proxy
    metadata: MetaData = field(default_factory=MetaData)
    runs: Counter[tuple[str, int]] = field(default_factory=Counter)
    heard: list[Any] = field(default_factory=list)
    published: int = 0

    def __post_init__(self) -> None:
        self.queue = make_outbox_table(self.metadata, "trial_queue")
        self.dlq = make_dlq_table(self.metadata, "trial_queue_dlq")
        self.log = make_log_tables(self.metadata, "trial_log", "trial_log_offsets")
        self.publisher = self._broker(self.near)
        events = Events()
        events.subscribe(self.heard.append)
        self.broker = self._broker(self.far)
        self.broker.client.events.subscribe(self.heard.append)
        self.outbox = Outbox(self.far, tables=self.log, retry_strategy=OFTEN, lease_ttl_seconds=2.0, events=events)

    def _broker(self, engine: AsyncEngine) -> OutboxBroker:
        return OutboxBroker(
            engine, outbox_table=self.queue, dlq_table=self.dlq, log_tables=self.log, logger=None, graceful_timeout=5.0
        )

    async def set_up(self) -> None:
        """Make the tables, empty."""
        async with self.near.begin() as connection:
            await connection.run_sync(self.metadata.drop_all)
            await connection.run_sync(self.metadata.create_all)
            await connection.execute(text("drop table if exists trial_effects"))
            await connection.execute(text("create table trial_effects (way text, number int)"))

    async def tear_down(self) -> None:
        """Drop the tables, after whoever was cut off half-way."""
        async with self.near.begin() as connection:
            await connection.execute(
                text(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and pid <> pg_backend_pid()"
                )
            )
        await self.near.dispose()
        async with self.near.begin() as connection:
            await connection.run_sync(self.metadata.drop_all)
            await connection.execute(text("drop table trial_effects"))

    async def _write(self, way: str, number: int, session: AsyncSession) -> None:
        self.runs[way, number] += 1
        await session.execute(text("insert into trial_effects values (:way, :number)"), {"way": way, "number": number})

    def subscribe(self, way: str) -> None:
        """Register the subscriber of one way."""
        options: dict[str, Any] = {"transactional": True, "retry_strategy": OFTEN, "lease_ttl_seconds": 2.0}
        options |= {"max_fetch_interval": 1.0}
        source: dict[str, Any] = {"topic": "orders", "group": way} if way.startswith("topic") else {"queues": way}
        if way.endswith("batch"):

            @self.broker.subscriber(**source, **options, batch=True, batch_size=10)
            async def handle_batch(bodies: list[int], session: OutboxSession) -> None:
                for body in bodies:
                    await self._write(way, body, session)

        elif way != "run":

            @self.broker.subscriber(**source, **options)
            async def handle(body: int, session: OutboxSession) -> None:
                await self._write(way, body, session)

    @asynccontextmanager
    async def running(self, *ways: str) -> AsyncIterator[None]:
        """Subscribers for the length of the block."""

        async def handle(message: OutboxMessage, session: AsyncSession) -> None:
            await self._write("run", int(message.payload or 0), session)

        stop = asyncio.Event()
        for way in ways:
            self.subscribe(way)
        await self.broker.start()
        task = None
        if "run" in ways:
            run = self.outbox.run(handle, "run", "orders", stop_event=stop, transactional=True)
            task = asyncio.create_task(run)
        try:
            yield
        finally:
            stop.set()
            if task is not None:
                await task
            await self.broker.stop()
            await self.outbox.cleanup()

    async def publish(self, *ways: str) -> None:
        """One more message on each of these ways."""
        self.published += 1
        async with AsyncSession(self.near) as session, session.begin():
            for way in ways:
                if way.startswith("queue"):
                    await self.publisher.publish(self.published, way, session=session)
            topic = Outbox(self.near, tables=self.log, listen=False)
            message = OutboxMessage(f"orders/{self.published % 7}", self.published)
            await topic.publish(session, message)

    async def effects(self, way: str) -> Counter[int]:
        """How often each message has had its effect."""
        async with self.near.connect() as connection:
            rows = await connection.execute(text("select number from trial_effects where way = :way"), {"way": way})
            return Counter(number for (number,) in rows)

    async def finished(self, *ways: str) -> None:
        """Wait until every message has had an effect, as long as somebody gets on with it."""
        for way in ways:
            done = len(await self.effects(way))
            while done < self.published:
                dead = await self._ask("select id, failure_reason, error_message from trial_queue_dlq limit 3")
                busy = await self._ask(
                    "select state, wait_event, now() - xact_start, left(query, 80) from pg_stat_activity "
                    "where datname = current_database() and state <> 'idle'"
                )
                left = f"{way} gets on with {self.published - done} of {self.published} messages"
                what = f"{left}; dead are {dead}; the line is {self.proxy.way.name}, and the server does {busy}"

                async def is_further(before: int = done, way: str = way) -> bool:
                    return len(await self.effects(way)) > before

                await eventually(is_further, STANDSTILL, what)
                done = len(await self.effects(way))

    async def _ask(self, question: str) -> list[Any]:
        async with self.near.connect() as connection:
            return list((await connection.execute(text(question))).all())

    async def is_settled(self) -> None:
        """Wait until nothing could come again: queues empty, nothing deferred, cursors behind everything."""

        async def nothing_is_left() -> bool:
            questions = (
                "select 1 from trial_queue",
                "select 1 from trial_log_deferred",
                "select 1 from trial_log_offsets o, trial_log l where o.position < l.position "
                "and l.slot between o.lo and o.hi",
            )
            return not any([await self._ask(one) for one in questions])

        await eventually(nothing_is_left, STANDSTILL)

    def reported(self, kind: type[Any]) -> list[Any]:
        """Events of one type."""
        return [one for one in self.heard if isinstance(one, kind)]

    def before_commit(self, act: Callable[[], None]) -> None:
        """Do something when the first transaction of a handler is about to send its COMMIT."""
        done = False

        def watched(open_session: Callable[[], AsyncSession]) -> Callable[[], AsyncSession]:
            def opened() -> AsyncSession:
                session = open_session()

                @event.listens_for(session.sync_session, "before_commit")
                def before(_: object) -> None:
                    nonlocal done
                    if not done and session.sync_session.get_nested_transaction() is None:
                        done = True
                        act()

                return session

            return opened

        for client in (self.broker.client, self.outbox.client):
            client.open_session = watched(client.open_session)  # type: ignore[method-assign]
