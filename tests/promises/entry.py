"""A public way in, where it is called, and how: what `entries` are made of."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import Inbox, OutboxBroker
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.log import Outbox
from faststream_outbox.overview import Overview
from faststream_outbox.queue import DeadLetters, OutboxClient
from faststream_outbox.relay import RelayMessage, Result


class Entry(NamedTuple):
    """A public name, or a method of one."""

    name: str
    call: Callable[..., Any]
    good: Mapping[str, Any]


class Nowhere:
    """A transport that nobody starts."""

    async def start(self) -> None:
        raise AssertionError

    async def stop(self) -> None:
        raise AssertionError

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        raise AssertionError(messages)


class Place:
    """The tables, and what entries are called on."""

    def __init__(
        self, engine: AsyncEngine, sync_engine: Engine, tables: tuple[Table, Table, Table], log_tables: LogTables
    ) -> None:
        self.engine, self.sync_engine, self.log_tables = engine, sync_engine, log_tables
        self.table, self.dlq_table, self.inbox_table = tables
        self.broker = self.make_broker()
        self.client = OutboxClient(engine, self.table, dlq_table=self.dlq_table, log=None)
        self.letters = DeadLetters(self.client)
        self.outbox = Outbox(engine, tables=log_tables, listen=False)
        self.inbox = Inbox(engine, self.inbox_table, consumer="c")
        self.overview = Overview(
            engine, table=self.table, dlq_table=self.dlq_table, log_tables=log_tables, inbox_table=self.inbox_table
        )

    def make_broker(self, **options: Any) -> OutboxBroker:
        given = {"engine": self.engine, "outbox_table": self.table, "dlq_table": self.dlq_table, "logger": None}
        return OutboxBroker(**{**given, "log_tables": self.log_tables} | options)

    async def close(self) -> None:
        await self.inbox.stop()
        await self.overview.close()
        await self.outbox.cleanup()
        await self.broker.stop()

    def in_session(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same with a session whose transaction is not committed."""

        async def within(**arguments: Any) -> None:
            async with AsyncSession(self.engine) as session:
                await call(session=session, **arguments)

        return within

    def in_sync_session(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same without an event loop."""

        def within(**arguments: Any) -> None:
            with Session(self.sync_engine) as session:
                call(session=session, **arguments)

        return within


def defaults(call: Any) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    factories = (inspect.Parameter.empty, getattr(inspect, "_empty", None))
    return {
        each.name: each.default
        for each in parameters
        if each.kind not in kinds and each.default not in factories and "factory" not in repr(each.default)
    }


def own(call: Any) -> dict[str, Any]:
    """Defaults of options that are ours; FastStream's are its own."""
    theirs = {"self", "codec", "decoder", "parser", "dependencies", "middlewares", "routers", "schema", "tags"}
    foreign = {"security", "logger", "log_level", "apply_types", "serializer", "provider", "context", "ack_policy"}
    about = {"include_in_schema", "title", "description", "specification", "specification_url", "protocol", "no_reply"}
    given = defaults(call)
    return {
        name: value
        for name, value in given.items()
        if name not in theirs | foreign | about and not name.startswith("_") and "EMPTY" not in repr(value)
    }


async def called(entry: Entry, **odd: Any) -> None:
    """Call an entry with all of its arguments, of which these are others."""
    result = entry.call(**{**entry.good, **odd})
    if inspect.isawaitable(result):
        async with asyncio.timeout(30):
            await result
