"""What a command works with: the place, the parts of the library that it needs of it, and the printer.

Each part is made when it is first asked for, and a table that it needs and that is not there is a refusal that says how
to name it. `close` ends the connections, after what was committed has been announced. Made by `command`.
"""

from functools import cached_property
from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.place import Place, Where
from faststream_outbox._internal.cli.printing import Printer
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.overview.overview import TIMEOUT, Overview
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.dead_letters import DeadLetters
from faststream_outbox._internal.schema.log_tables import LogTables

T = TypeVar("T")


class Here:
    """One database, while one command runs."""

    def __init__(self, place: Place, printer: Printer, source: Place, where: Where) -> None:
        self.place = place
        self.printer = printer
        self.source = source
        """What the application has described, if one was named."""
        self.where = where
        """What was said on the command line."""
        self._closing: list[Any] = []

    @property
    def engine(self) -> AsyncEngine:
        """The database's engine."""
        return self.place.engine

    @property
    def timeout(self) -> float:
        """Seconds that one question may take."""
        return TIMEOUT if self.where.timeout is None else self.where.timeout.total_seconds()

    @property
    def table(self) -> Table:
        """The queues' table."""
        return _needed(self.place.tables.table, "queues", "--table")

    @property
    def dlq_table(self) -> Table:
        """The dead letters' table."""
        return _needed(self.place.tables.dlq_table, "dead letters", "--dlq-table")

    @property
    def log_tables(self) -> LogTables:
        """The topics' tables."""
        return _needed(self.place.tables.log_tables, "topics", "--log")

    @property
    def inbox_table(self) -> Table:
        """The receipts' table."""
        return _needed(self.place.tables.inbox_table, "receipts", "--inbox")

    @cached_property
    def client(self) -> OutboxClient:
        """The queues' client; it has no workers."""
        made = OutboxClient(self.engine, self.table, dlq_table=self.place.tables.dlq_table, log=None)
        self._closing.append(made.wakeups.close)
        return made

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of the queues."""
        _ = self.dlq_table
        return DeadLetters(self.client)

    @cached_property
    def outbox(self) -> Outbox:
        """The topics; nothing is read."""
        made = Outbox(self.engine, tables=self.log_tables)
        self._closing.append(made.cleanup)
        return made

    @cached_property
    def overview(self) -> Overview:
        """The questions that change nothing."""
        tables = self.place.tables
        if tables.table is None and tables.log_tables is None:
            msg = (
                "Neither a table of queues nor a log is here under its usual name. Name them with --table and --log, "
                "and their schema with --schema; `schema print` has the SQL that makes them."
            )
            raise Refusal(msg)
        made = Overview(self.engine, **tables.keywords(), timeout=self.timeout)
        self._closing.append(made.close)
        return made

    def connection(self) -> DedicatedConnection:
        """A connection that is closed with the rest."""
        made = DedicatedConnection(self.engine)
        self._closing.append(made.close)
        return made

    async def close(self) -> None:
        """Announce what was committed, and end the connections."""
        for close in reversed(self._closing):
            await close()


def _needed(found: T | None, what: str, option: str) -> T:
    if found is None:
        msg = (
            f"No table for {what} is here under its usual name: name it with {option}, and its schema with --schema. "
            "`schema print` has the SQL that makes it."
        )
        raise Refusal(msg)
    return found
