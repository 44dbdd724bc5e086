"""Tables in a schema of their own, the roles of the security page on them, and engines that act as one of the roles.

The roles' search path does not lead to the tables, and nobody may create anything there.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import URL, Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.schema.names import Names
from faststream_outbox.log import make_log_tables
from tests.rights.grants import ROLES, granted, printed

SCHEMA = "messages"
PERSON = "outbox_person"


class Stage:
    """Everything that the roles work on; they find the tables by their schema, or by their search path."""

    def __init__(self, builder: Engine, url: URL, *, by_path: bool = False) -> None:
        self._builder = builder
        self._url = url
        self._by_path = by_path
        self.metadata = MetaData(schema=None if by_path else SCHEMA)
        self.table: Table = make_outbox_table(self.metadata)
        self.dlq_table: Table = make_dlq_table(self.metadata)
        self.inbox_table: Table = make_inbox_table(self.metadata)
        self.log_tables: LogTables = make_log_tables(self.metadata, "outbox_log")
        self.names = Names.of(self.table, self.dlq_table)
        self.inbox_names = Names.of(self.inbox_table)
        self.log_names = LogNames.of(self.log_tables)

    def execute(self, *statements: str) -> None:
        """Run statements as the owner, with the schema in the path."""
        with self._builder.begin() as connection:
            connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
            for statement in statements:
                connection.exec_driver_sql(statement)

    def ask(self, statement: str) -> Sequence[Any]:
        """The rows that the owner sees."""
        with self._builder.begin() as connection:
            connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
            return connection.exec_driver_sql(statement).all()

    @contextmanager
    def drawing(self) -> Iterator[int]:
        """A session of the owner's that has drawn a number of the log, and has not ended its transaction."""
        with self._builder.connect() as connection:
            drawn = f"SELECT pg_backend_pid() FROM nextval('{SCHEMA}.outbox_log_head_drawn_seq')"
            yield connection.exec_driver_sql(drawn).scalar_one()

    def engine(self, role: str, driver: str = "asyncpg", *, search_path: str | None = None) -> AsyncEngine:
        """An engine whose connections act as the role, with a search path of their own if one is given."""
        path = search_path or (SCHEMA if self._by_path else None)
        settings = {"role": role} | ({} if path is None else {"search_path": path})
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        arguments: dict[str, Any] = {"server_settings": settings} if driver == "asyncpg" else {"options": options}
        return create_async_engine(self._url.set(drivername=f"postgresql+{driver}"), connect_args=arguments)

    @asynccontextmanager
    async def acting(self, role: str, driver: str = "asyncpg", **options: Any) -> AsyncGenerator[AsyncEngine]:
        """The same for as long as it is needed."""
        engine = self.engine(role, driver, **options)
        try:
            yield engine
        finally:
            await engine.dispose()

    @contextmanager
    def login(self, role: str, *, search_path: str | None = None) -> Iterator[URL]:
        """The address for somebody who logs in with the rights of the role, and whose role has this search path."""
        self.execute(f"CREATE ROLE {PERSON} LOGIN PASSWORD '{PERSON}' IN ROLE {role}")
        try:
            if search_path is not None:
                self.execute(f"ALTER ROLE {PERSON} SET search_path = {search_path}")
            yield self._url.set(username=PERSON, password=PERSON)
        finally:
            self.execute(f"DROP OWNED BY {PERSON}; DROP ROLE {PERSON}")

    def build(self) -> None:
        """Make the tables and the roles, and grant what the page says."""
        self.clear()
        self.execute(f"CREATE SCHEMA {SCHEMA}", *(f"CREATE ROLE {role}" for role in ROLES))
        with self._builder.begin() as connection:
            self.metadata.create_all(connection)
        self.execute(*(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}" for role in ROLES), *granted())

    def clear(self) -> None:
        """Leave nothing behind."""
        there = self.ask(f"SELECT rolname FROM pg_roles WHERE rolname IN ({', '.join(map(repr, ROLES))})")
        self.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        self.execute(*(f"DROP OWNED BY {role}; DROP ROLE {role}" for (role,) in there))

    def empty(self) -> None:
        """Delete every row, and begin the numbers anew."""
        tables = ", ".join(table.name for table in self.metadata.sorted_tables)
        self.execute(f"TRUNCATE {tables} RESTART IDENTITY")

    @contextmanager
    def confined(self) -> Iterator[None]:
        """With the policies of the page, and its shop."""
        self.execute(*printed("Row-level security"), f"GRANT USAGE ON SCHEMA {SCHEMA} TO shop")
        yield
        self.execute("DROP OWNED BY shop", "DROP ROLE shop")
        for table in ("outbox", "outbox_log"):
            self.execute(
                f"DROP POLICY IF EXISTS everything ON {table}", f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY"
            )

    @contextmanager
    def without(self, *statements: str) -> Iterator[None]:
        """Run statements, and have every right of the page again afterwards."""
        self.execute(*statements)
        try:
            yield
        finally:
            self.execute(*granted())
