"""A log that exists for the length of one test, and what tests do to one again and again."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.log import Outbox, OutboxMessage, Token
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

    async def __call__(self, message: OutboxMessage) -> None:
        self.messages.append(message)

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


async def ask(engine: AsyncEngine, sql: str, **values: Any) -> Sequence[Any]:
    """The rows of a statement, committed."""
    async with engine.begin() as connection:
        result = await connection.execute(text(sql), values)
        return result.all() if result.returns_rows else []
