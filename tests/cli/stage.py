"""A database with everything in it that commands are about, and the command line to look at it with."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import URL, Engine, MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from typer.testing import CliRunner

from faststream_outbox import Envelope, NoRetry
from faststream_outbox._internal.cli.app import app
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table

BURY = """
insert into outbox_dlq (original_id, message_id, queue, payload, headers, key, attempts_count, deliveries_count,
                        created_at, failed_at, failure_reason, error_type, error_message, traceback)
select 1000 + i, gen_random_uuid(), :queue, convert_to('{"order": ' || i || '}', 'UTF8'), '{"source": "shop"}',
       'customer-' || i % 2, 3, 4, now() - interval '1 day', now() - make_interval(mins => i), 'retry_terminal',
       :error, 'number ' || i, 'Traceback: ' || i
from generate_series(1, :count) i
"""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def data(self) -> Any:
        return self.document["data"]

    @property
    def said(self) -> str:
        return self.out + self.err


class Stage:
    """The tables under their usual names, and ways to fill them."""

    def __init__(self, url: URL, builder: Engine) -> None:
        self.url = url
        self.dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.builder = builder
        metadata = MetaData()
        self.table = make_outbox_table(metadata)
        self.dlq_table = make_dlq_table(metadata)
        self.log_tables = make_log_tables(metadata, "outbox_log")
        self.inbox_table = make_inbox_table(metadata)
        self.tables = [self.table, self.dlq_table, *self.log_tables.all, self.inbox_table]

    def run(self, *arguments: str, code: int | None = 0, input: str | None = None, dsn: str | None = None) -> Printed:
        """Run a command; it has to end with this exit code, None being any."""
        environment = {"OUTBOX_DSN": self.dsn if dsn is None else dsn, "TERM": "dumb", "NO_COLOR": "1"}
        result = CliRunner().invoke(app, [*arguments], input=input, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        printed = Printed(result.exit_code, result.stdout, result.stderr)
        assert code is None or printed.code == code, printed
        return printed

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The data that a command prints with --json, in the one shape."""
        printed = self.run(*arguments, "--json", code=code)
        assert set(printed.document) == {"command", "exit_code", "data", "error"}
        assert printed.document["exit_code"] == code
        return printed.data

    def sql(self, statement: str, **values: object) -> list[Any]:
        """Run SQL, and commit it."""
        with self.builder.begin() as connection:
            found = connection.execute(text(statement), values)
            return list(found.all()) if found.returns_rows else []

    @contextmanager
    def schema(self, name: str) -> Iterator[None]:
        """A schema for the length of a test."""
        self.sql(f"create schema {name}")
        try:
            yield
        finally:
            self.sql(f"drop schema {name} cascade")

    @contextmanager
    def renamed(self, table: str) -> Iterator[None]:
        """Without a table, which is there again afterwards."""
        self.sql(f"alter table {table} rename to elsewhere")
        try:
            yield
        finally:
            self.sql(f"alter table elsewhere rename to {table}")

    def bury(self, count: int = 3, queue: str = "orders", error: str = "ValueError") -> None:
        """Dead letters that failed alike, a minute apart."""
        self.sql(BURY, queue=queue, error=error, count=count)

    def dead(self) -> int:
        return int(self.sql("select count(*) from outbox_dlq")[0][0])

    def publish(self, *envelopes: Envelope) -> None:
        async def work(engine: AsyncEngine) -> None:
            async with AsyncSession(engine) as session, session.begin():
                await publish(session, self.table, *envelopes)

        self.working(work)

    def timer(self, timer_id: str = "remind-1", queue: str = "orders") -> None:
        self.publish(Envelope(queue=queue, body=b"{}", timer_id=timer_id, activate_in=timedelta(days=1)))

    def topic(
        self,
        group: str = "billing",
        keys: Iterable[str] = ("a", "b"),
        *,
        parks: bool = False,
        reads: int = 1,
        error: str = "no address",
    ) -> None:
        """Messages of a topic, of which a group has read some; it parked the first of each key, or handled it."""

        async def work(engine: AsyncEngine) -> None:
            options: dict[str, Any] = {"retry_strategy": NoRetry(), "on_parked": "hold_key", "batch_size": 1}
            outbox = Outbox(engine, tables=self.log_tables, **options)
            async with outbox:
                async with AsyncSession(engine) as session, session.begin():
                    await outbox.publish(session, *(OutboxMessage(f"shop/{key}", {"key": key}) for key in keys))

                async def handle(message: OutboxMessage) -> None:
                    if parks:
                        raise ValueError(error)

                for _ in range(reads):
                    await outbox.dispatch(handle, group, "shop")

        self.working(work)

    def working(self, work: Callable[[AsyncEngine], Awaitable[None]]) -> None:
        """Run something of the library in an event loop of its own."""

        async def run() -> None:
            engine = create_async_engine(self.url)
            try:
                await work(engine)
            finally:
                await engine.dispose()

        asyncio.run(run())
