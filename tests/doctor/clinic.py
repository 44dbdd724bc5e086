"""Tables to examine, and the commands of findings run as an operator would: SQL by psql, Python with a broker."""

import ast
import inspect
import os
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.doctor import Doctor, Finding, Limits
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.testing.postgres import PostgresServer
from tests.publish.ways import plain
from tests.waiting import eventually, eventually_sync


@dataclass
class Clinic:
    """One database with all tables, and whoever examines it."""

    server: PostgresServer
    engine: AsyncEngine
    partitioned: bool = False
    metadata: MetaData = field(default_factory=MetaData)

    @property
    def server_version(self) -> int:
        return int(os.environ.get("OUTBOX_TEST_PG", "18"))

    def __post_init__(self) -> None:
        self.table: Table = make_outbox_table(self.metadata)
        self.dlq_table: Table = make_dlq_table(self.metadata)
        self.inbox_table: Table = make_inbox_table(self.metadata)
        self.log_tables: LogTables = make_log_tables(self.metadata, "outbox_log", partitioned=self.partitioned)
        self.log = Outbox(self.engine, tables=self.log_tables)

    @property
    def dsn(self) -> str:
        return plain(self.engine.url)

    def doctor(self, engine: AsyncEngine | None = None, **limits: Any) -> Doctor:
        tables = {"table": self.table, "dlq_table": self.dlq_table, "inbox_table": self.inbox_table}
        return Doctor(
            engine or self.engine, **tables, log_tables=self.log_tables, timeout=30.0, limits=Limits(**limits)
        )

    async def found(self, check: str, **limits: Any) -> Sequence[Finding]:
        """What a check complains of."""
        found = await self.doctor(**limits).examine(only=[check])
        assert found, f"the check {check} has not run"
        return [finding for finding in found if finding.severity != "ok"]

    async def one(self, check: str, about: str = "", **limits: Any) -> Finding:
        """The only complaint of a check about something."""
        found = await self.found(check, **limits)
        (finding,) = [item for item in found if about in f"{item.title} {item.detail}"]
        return finding

    async def heals(self, check: str, about: str = "", **limits: Any) -> Finding:
        """A complaint whose commands end it; gives it as it was."""
        finding = await self.one(check, about, **limits)
        assert finding.title
        assert finding.cost.endswith(".")
        await self.repair(finding)
        await self.healed(check, about, **limits)
        return finding

    async def healed(self, check: str, about: str = "", **limits: Any) -> None:
        """Wait until there is no such complaint: a session takes a moment to end, and a setting to be read."""

        async def is_gone() -> bool:
            found = await self.found(check, **limits)
            return not [item for item in found if about in f"{item.title} {item.detail}"]

        await eventually(is_gone, message=f"{check} complains no more of {about or 'anything'}")

    async def repair(self, finding: Finding) -> None:
        """Paste the commands of a finding."""
        if finding.repair.startswith("# Python"):
            await self.python(finding.repair)
        else:
            self.psql(finding.repair)

    def psql(self, commands: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
            file.write(commands)
            file.flush()
            arguments = ("-X", "-v", "ON_ERROR_STOP=1", "-d", str(self.engine.url.database), "-f", Path(file.name))
            self.server.run("psql", *arguments)

    async def python(self, code: str) -> None:
        broker = OutboxBroker(
            self.engine, outbox_table=self.table, dlq_table=self.dlq_table, log_tables=self.log_tables
        )
        await broker.connect()
        try:
            program = compile(code, "repair", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(program, {"broker": broker, "log_tables": self.log_tables})
            if inspect.iscoroutine(running):
                await running
        finally:
            await broker.stop()

    def wait_until_alone(self) -> None:
        """Wait for the sessions of earlier tests: a server takes a moment to end them after they were closed."""
        ours = "select from pg_stat_activity where datname = current_database() and application_name ^@ 'outbox '"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            eventually_sync(lambda: not connection.execute(ours).rowcount, message="no worker is connected")

    @contextmanager
    def session(self, **settings: Any) -> Any:
        """A session of somebody else's; what is left of it is ended."""
        connection = psycopg.connect(self.dsn, **settings)
        try:
            yield connection
        finally:
            connection.close()

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    async def publish(self, *bodies: int) -> tuple[int, ...]:
        """Messages of a topic; their positions."""
        async with self.engine.begin() as connection:
            return (await self.log.publish(connection, *(OutboxMessage("orders", body) for body in bodies))).positions
