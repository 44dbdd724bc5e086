"""A log that exists for the length of one test, and what tests do to one again and again."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox.log import Delivery, Outbox, OutboxMessage, Token
from tests.tables import removal_of


@asynccontextmanager
async def opened(engine: AsyncEngine, **options: Any) -> AsyncGenerator[Outbox]:
    """A log with its tables, dropped again at the end; fails the test that left a lock on one."""
    outbox = Outbox(engine, **options)
    await outbox.setup()
    try:
        yield outbox
    finally:
        await outbox.cleanup()
        await _drop(outbox, engine)


async def _drop(outbox: Outbox, engine: AsyncEngine) -> None:
    tables = list(outbox.tables.all)

    async def drop() -> None:
        async with engine.begin() as connection:
            for step in removal_of(tables).split("; "):
                await connection.exec_driver_sql(step)

    try:
        await drop()
    except DBAPIError as error:
        async with engine.begin() as connection:
            await connection.execute(
                text(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
            )
        await engine.dispose()
        await drop()
        pytest.fail(f"the test left a transaction open that holds a lock on {tables[0].name}: {error.orig}")


async def put(outbox: Outbox, uri: str, *payloads: Any) -> Token:
    """Publish payloads under one URI, in one transaction, and commit."""
    async with AsyncSession(outbox.engine) as session, session.begin():
        return await outbox.publish(session, *[OutboxMessage(uri, payload) for payload in payloads])


class Collector:
    """A subscriber that keeps what it was given."""

    def __init__(self) -> None:
        self.messages: list[OutboxMessage] = []

    async def __call__(self, message: OutboxMessage, *_: Any) -> None:
        self.messages.append(message)

    async def batch(self, deliveries: Sequence[Delivery]) -> list[Outcome]:
        """Handle several at once."""
        self.messages += [delivery.message for delivery in deliveries]
        return [DONE] * len(deliveries)

    @property
    def payloads(self) -> list[Any]:
        """What the messages say, in the order of delivery."""
        return [message.payload for message in self.messages]

    def of(self, uri: str) -> list[Any]:
        """What the messages of one URI say."""
        return [message.payload for message in self.messages if message.uri == uri]


async def drain(outbox: Outbox, subscriber: Any, consumer_group: str = "", uri: str = "", **options: Any) -> None:
    """Dispatch until there is nothing left to do now."""
    while await outbox.dispatch(subscriber, consumer_group, uri, **options):
        pass


async def delivered(outbox: Outbox, consumer_group: str = "", uri: str = "", **options: Any) -> list[Any]:
    """The payloads that a group has not read yet, read now."""
    collector = Collector()
    await drain(outbox, collector, consumer_group, uri, **options)
    return collector.payloads


async def refuse(message: OutboxMessage, *_: Any) -> None:
    """A subscriber that fails, with a session or without."""
    raise ValueError(message.payload)


@asynccontextmanager
async def reading(
    outbox: Outbox, subscriber: Any, consumer_group: str = "", uri: str = "", **options: Any
) -> AsyncGenerator[asyncio.Task[None]]:
    """A group that is read in the background; told to stop, and waited for, at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(outbox.run(subscriber, consumer_group, uri, stop_event=stop, **options))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, 30)


@asynccontextmanager
async def reading_batches(outbox: Outbox, collector: Collector, consumer_group: str) -> AsyncGenerator[None]:
    """A group whose handler is given several messages at once; at the end it is not waited for."""
    worker = LogWorker(outbox.client, Group(consumer_group), collector.batch, options=ReadOptions(), batch=True)
    await worker.start()
    try:
        yield
    finally:
        await worker.stop(0.0)


@asynccontextmanager
async def iterating(outbox: Outbox, seen: list[Any], uri: str = "", last: Any = None) -> AsyncGenerator[None]:
    """A loop in the background, which stays at the last message if one is named; cancelled at the end."""

    async def read() -> None:
        async for message in outbox.messages("g", uri):
            seen.append(message.payload)
            if message.payload == last:
                await asyncio.Event().wait()

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def ask(engine: AsyncEngine, sql: str, **values: Any) -> Sequence[Any]:
    """The rows of a statement, committed."""
    async with engine.begin() as connection:
        result = await connection.execute(text(sql), values)
        return result.all() if result.returns_rows else []
