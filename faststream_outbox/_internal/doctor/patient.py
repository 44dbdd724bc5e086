"""What is examined: the tables, the connection to ask on, and what is known of the server. Made by `Doctor`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.schema.names import AnyNames, Names, quoted_name, schema_map_of
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.doctor_rows import ServerRow
from faststream_outbox._internal.sql.rows import ShapeT, named
from faststream_outbox.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Examined:
    """The tables that there are."""

    table: Table | None
    dlq_table: Table | None
    log_tables: LogTables | None
    inbox_table: Table | None

    @property
    def all(self) -> Sequence[Table]:
        """Every one of them."""
        of_log = () if self.log_tables is None else self.log_tables.all
        single = [table for table in (self.table, self.dlq_table, self.inbox_table) if table is not None]
        return [*single, *of_log]


@dataclass(frozen=True, slots=True)
class Patient:
    """Everything that a check may look at."""

    engine: AsyncEngine
    """For whoever needs SQLAlchemy; apart from the application's."""
    connection: DedicatedConnection
    tables: Examined
    limits: Limits
    server: ServerRow
    differences: list[Sequence[Difference] | Exception] = field(default_factory=list[Sequence[Difference] | Exception])
    """What the first check of the schema found, or why it could not, for those that come later."""

    async def ask(self, shape: type[ShapeT], file: str, name: str, **values: Any) -> list[ShapeT]:
        """The rows of a statement of the doctor's."""
        return named(shape, await self.fetch(file, name, values))

    async def fetch(self, file: str, name: str, values: Mapping[str, Any]) -> Sequence[Row]:
        """The same, as they come."""
        return await self.connection.fetch(statements(file, self.names_of(file))[name], values)

    def names_of(self, file: str) -> AnyNames:
        """Whose tables the statements of a file name."""
        if file == "doctor_log":
            return self.log
        if self.tables.table is not None:
            return self.queue
        # Statements about the server name no table.
        return Names("", None, "") if self.tables.log_tables is None else self.log

    @property
    def queue(self) -> Names:
        """Names of the queues' tables."""
        if self.tables.table is None:
            msg = "The doctor was given no table of queues: pass table=make_outbox_table(metadata)."
            raise InvalidOption(msg)
        return Names.of(self.tables.table, self.tables.dlq_table, schema_map_of(self.engine))

    @property
    def log(self) -> LogNames:
        """Names of the log's tables."""
        if self.tables.log_tables is None:
            msg = "The doctor was given no log: pass log_tables=make_log_tables(metadata)."
            raise InvalidOption(msg)
        return LogNames.of(self.tables.log_tables, schema_map_of(self.engine))

    @property
    def names(self) -> list[str]:
        """Every table as SQL."""
        return [quoted_name(table, schema_map_of(self.engine)) for table in self.tables.all]

    def name(self, table: Table) -> str:
        """A table as SQL."""
        return quoted_name(table, schema_map_of(self.engine))
