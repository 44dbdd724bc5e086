"""One way to run a statement through whatever the caller has open.

SQLAlchemy sessions and connections, asyncpg connections, psycopg connections and anything with a psycopg cursor
(Django's `connection` too). The statement runs in the caller's transaction, if there is one; nothing is flushed, begun
or committed here. The session of a transactional handler is refused once that has ended. What takes several statements
is written once, as `Steps`, and run with an event loop or without one.

Where nobody can see a difference, a statement goes to the cursor below SQLAlchemy's connection: that is half of what
publishing one message adds to a transaction. It is the cursor that SQLAlchemy itself would use: the same transaction,
the same prepared statements, the same errors, and a dead connection is taken out of the pool as ever. Not where
somebody listens (echo, events such as those of OpenTelemetry's instrumentation), and not where SQLAlchemy would first
have to begin a transaction or to refuse the statement. What is read here of SQLAlchemy's is private: where it is
missing, the answer is no. Used by publishing, by the inbox, and by settling inside a handler's transaction.
"""

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar, cast
from weakref import WeakSet

from sqlalchemy import Connection, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from faststream_outbox._internal.connections.cause import hide_parameters
from faststream_outbox._internal.connections.rights import missing_right
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.statements import Statement, statements
from faststream_outbox.errors import SessionRequired, UnsupportedSession

DRIVERS = frozenset({"asyncpg", "psycopg", "psycopg_async"})
"""Not psycopg2: SQLAlchemy logs its notices after each statement."""


def is_at_once(connection: Connection) -> bool:
    """Whether a statement may go to the cursor at once."""
    return connection.dialect.driver in DRIVERS and not _is_watched(connection) and _is_under_way(connection)


def _is_watched(connection: Any) -> bool:
    """Whether statements are logged or listened to."""
    return (
        getattr(connection, "_echo", True)
        or getattr(connection, "_has_events", True)
        or getattr(connection.engine, "_has_events", True)
        or getattr(connection.dialect, "_has_events", True)
    )


def _is_under_way(connection: Any) -> bool:
    """Whether a transaction has begun, and neither it nor the savepoint or the block that one is in has ended."""
    root, savepoint = connection.get_transaction(), connection.get_nested_transaction()
    block = getattr(connection, "_trans_context_manager", root)
    return (
        root is not None
        and root.is_active
        and (savepoint is None or savepoint.is_active)
        and (block is None or block.is_active)
    )


def fetch_at_once(connection: Connection, sql: str, parameters: Any) -> list[Any]:
    """Run a statement of a connection that `is_at_once`; its rows."""
    proxied = connection.connection
    cursor: Any = None
    try:
        cursor = proxied.cursor()
        dialect: Any = connection.dialect
        if dialect.driver == "asyncpg":
            # As before every statement of SQLAlchemy's: what was prepared before a change of the schema is not used.
            cursor._invalidate_schema_cache_asof = dialect._invalidate_schema_cache_asof
        cursor.execute(sql, parameters)
        rows: list[Any] = cursor.fetchall()
        cursor.close()
    except BaseException as error:  # noqa: BLE001 - raised again, as SQLAlchemy would
        _raise(connection, error, cursor, sql, parameters)
    return rows


def _raise(connection: Connection, error: BaseException, cursor: Any, sql: str, parameters: Any) -> NoReturn:
    """Raise what SQLAlchemy would have raised, after what it would have done about it."""
    dialect = connection.dialect
    if not isinstance(error, dialect.loaded_dbapi.Error):
        # Without a statement it passes on what is no error of the driver's, as it does where a statement is running.
        connection._handle_dbapi_exception(error, None, None, cursor, None)
    # Of the execution context, which there is none of, it needs the dialect alone.
    context: Any = dialect.execution_ctx_cls
    context.handle_dbapi_exception(connection, error)
    connection._handle_dbapi_exception(error, sql, parameters, cursor, None)


T = TypeVar("T")
Rows = Sequence[Sequence[Any]]
Steps = Generator[tuple[Statement, Mapping[str, Any]], Rows, T]
"""Statements to run one after the other: yields each with its values, gets its rows, or is thrown its error."""

_ENDED: WeakSet[Any] = WeakSet()
_ENDED_SESSION = (
    "The transactional handler that this session belongs to has ended, and so has its transaction: what is written now "
    "would never be committed. Publish before the handler returns, which may await its tasks; or open a session of "
    "your own: async with AsyncSession(engine) as session, session.begin(): await broker.publish(…, session=session)."
)


def end(session: AsyncSession | Session) -> None:
    """Refuse a handler's session from now on: whoever still has it could begin a transaction that nobody ends."""
    _ENDED.add(session)
    sync: object = getattr(session, "sync_session", None)
    if isinstance(sync, Session):
        _ENDED.add(sync)


def check_open(session: object) -> None:
    """Refuse the session of a transactional handler that has ended."""
    # Whatever has no hash is no session either, which is said where it is opened.
    if getattr(type(session), "__hash__", None) is not None and session in _ENDED:
        raise SessionRequired(_ENDED_SESSION)


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, or one that its pool lends; asyncpg has no types of its own."""

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def fetch(self, query: str, *args: Any) -> Awaitable[Any]:
        """Run a statement."""
        ...


class AsyncDriverConnection(Protocol):
    """psycopg's AsyncConnection, which need not be installed."""

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """A cursor."""
        ...

    def commit(self) -> Awaitable[None]:
        """Commit."""
        ...


class DriverConnection(Protocol):
    """A connection of psycopg or psycopg2, or whatever else has their cursors, such as Django's."""

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """A cursor."""
        ...

    def commit(self) -> None:
        """Commit."""
        ...


AnySession = AsyncSession | AsyncConnection | async_scoped_session[Any] | AsyncpgConnection | AsyncDriverConnection
"""AsyncSession, AsyncConnection, asyncpg connection or psycopg AsyncConnection."""

AnySyncSession = Session | scoped_session[Any] | Connection | DriverConnection
"""Session, Connection, psycopg Connection, or an object whose `cursor()` is psycopg's."""


@dataclass(slots=True)
class CallerConnection:
    """A caller's session, opened up: names for its schema map, and what can be known of its commit."""

    names: Names
    session: Session | None
    is_autocommit: bool
    connection: Any
    style: str
    schema_map: Mapping[str | None, str | None] | None = None

    def sql(self, file: str, name: str) -> Statement:
        """A named statement for this session's tables."""
        return statements(file, self.names)[name]

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Rows:
        """Run a statement in the caller's transaction, with `await`."""
        try:
            match self.style:
                case "alchemy":
                    call = _driver_call(self.connection, statement, values)
                    return cast("Rows", (await self.connection.exec_driver_sql(*call)).fetchall())
                case "asyncpg":
                    return cast("Rows", await self.connection.fetch(statement.dollar, *statement.arguments(values)))
                case _:
                    async with self.connection.cursor() as own:
                        own.row_factory = _tuples
                        await own.execute(statement.pyformat, values)
                        return cast("Rows", await own.fetchall())
        except Exception as error:
            _explain(error, statement)
            raise

    def fetch_sync(self, statement: Statement, values: Mapping[str, Any]) -> Rows:
        """Run a statement in the caller's transaction, without an event loop."""
        try:
            if self.style == "alchemy":
                call = _driver_call(self.connection, statement, values)
                if is_at_once(self.connection):
                    return fetch_at_once(self.connection, *call)
                return cast("Rows", self.connection.exec_driver_sql(*call).fetchall())
            with self.connection.cursor() as own:
                if type(own).__module__.partition(".")[0] == "psycopg":
                    own.row_factory = _tuples
                own.execute(statement.pyformat, values)
                return [tuple(row.values()) if isinstance(row, Mapping) else row for row in own.fetchall()]
        except Exception as error:
            _explain(error, statement)
            raise


async def run(opened: CallerConnection, steps: Steps[T]) -> T:
    """Run statements as they are asked for, with `await`; what they come to."""
    try:
        asked = next(steps)
        while True:
            try:
                rows = await opened.fetch(*asked)
            except BaseException as error:  # noqa: BLE001 - raised again by the steps, unless they deal with it
                asked = steps.throw(error)
            else:
                asked = steps.send(rows)
    except StopIteration as end:
        return cast("T", end.value)


def run_sync(opened: CallerConnection, steps: Steps[T]) -> T:
    """As `run`, without an event loop."""
    try:
        asked = next(steps)
        while True:
            try:
                rows = opened.fetch_sync(*asked)
            except BaseException as error:  # noqa: BLE001 - raised again by the steps, unless they deal with it
                asked = steps.throw(error)
            else:
                asked = steps.send(rows)
    except StopIteration as end:
        return cast("T", end.value)


def _explain(error: Exception, statement: Statement) -> None:
    """Raise what says which right is missing, if one is; otherwise keep the message out of the error's text."""
    hide_parameters(error)
    missing = missing_right(error, statement)
    if missing is not None:
        raise missing from error


def _tuples(cursor: Any) -> Any:
    # The caller's connection may make dicts of rows; ours are named by the places of their columns.
    return tuple


def _driver_call(connection: Any, statement: Statement, values: Mapping[str, Any]) -> tuple[str, Any]:
    if connection.dialect.driver == "asyncpg":
        return statement.dollar, statement.arguments(values)
    if connection.dialect.driver in ("psycopg", "psycopg_async", "psycopg2"):
        return statement.pyformat, dict(values)
    msg = (
        f"The session's engine uses the driver {connection.dialect.driver!r}. Publishing works with asyncpg, "
        "psycopg and psycopg2; see the documented INSERT for others."
    )
    raise UnsupportedSession(msg)


def _alchemy(
    connection: AsyncConnection | Connection, session: Session | None, table: Table, dlq: Table | None
) -> CallerConnection:
    sync = connection.sync_connection if isinstance(connection, AsyncConnection) else connection
    if sync is None:
        msg = "The AsyncConnection is not open: use it inside `async with engine.connect()`."
        raise UnsupportedSession(msg)
    schema_map = sync.get_execution_options().get("schema_translate_map")
    autocommit = sync.dialect.detect_autocommit_setting(sync.connection.dbapi_connection)  # type: ignore[arg-type]  # None only if closed
    return CallerConnection(Names.of(table, dlq, schema_map), session, autocommit, connection, "alchemy", schema_map)


def _is_a(session: object, package: str, *names: str) -> bool:
    """Whether it is one of a driver's classes or of their subclasses; the driver need not be installed."""
    return any(
        kind.__module__.partition(".")[0] == package and kind.__name__ in names for kind in type(session).__mro__
    )


def _commits_each(session: Any) -> bool:
    """Whether a connection of psycopg commits each statement by itself."""
    is_known = _is_a(session, "psycopg", "Connection", "AsyncConnection") or _is_a(session, "psycopg2", "connection")
    return is_known and bool(session.autocommit) and int(session.info.transaction_status) == 0


def check_session(session: object) -> None:
    """Refuse what is no async session or connection, and say what can be passed instead."""
    if (
        isinstance(session, AsyncSession | AsyncConnection | async_scoped_session)
        or _is_a(session, "asyncpg", "Connection", "PoolConnectionProxy")
        or _is_a(session, "psycopg", "AsyncConnection")
    ):
        return
    msg = (
        f"session is a {type(session).__name__}. Pass the AsyncSession or AsyncConnection whose transaction the "
        "message belongs to (or a raw asyncpg or psycopg AsyncConnection). For a sync Session use publish_sync."
    )
    raise UnsupportedSession(msg)


def check_sync_session(session: object) -> None:
    """Refuse what is no sync session or connection, and say what can be passed instead."""
    if isinstance(session, Session | Connection | scoped_session):
        return
    is_async = _is_a(session, "asyncpg", "Connection", "PoolConnectionProxy") or _is_a(
        session, "psycopg", "AsyncConnection"
    )
    if callable(getattr(session, "cursor", None)) and not is_async:
        return
    msg = (
        f"session is a {type(session).__name__}. Pass the Session or Connection whose transaction the message "
        "belongs to (or a raw psycopg connection). For an AsyncSession use publish."
    )
    raise UnsupportedSession(msg)


async def caller_connection(given: AnySession, table: Table, dlq_table: Table | None = None) -> CallerConnection:
    """Open up an async session or connection, or say what can be passed instead."""
    # Whatever its type says, it may be anything.
    session: Any = given() if isinstance(given, async_scoped_session) else given
    check_session(session)
    if isinstance(session, AsyncSession):
        check_open(session)
        connection = await session.connection(bind_arguments={"clause": table})
        return _alchemy(connection, session.sync_session, table, dlq_table)
    if isinstance(session, AsyncConnection):
        return _alchemy(session, None, table, dlq_table)
    names = Names.of(table, dlq_table)
    if _is_a(session, "asyncpg", "Connection", "PoolConnectionProxy"):
        return CallerConnection(names, None, not session.is_in_transaction(), session, "asyncpg")
    return CallerConnection(names, None, _commits_each(session), session, "psycopg")


def caller_connection_sync(given: AnySyncSession, table: Table, dlq_table: Table | None = None) -> CallerConnection:
    """Open up a sync session or connection, or say what can be passed instead."""
    session: Any = given() if isinstance(given, scoped_session) else given
    check_sync_session(session)
    if isinstance(session, Session):
        check_open(session)
        connection = session.connection(bind_arguments={"clause": table})
        return _alchemy(connection, session, table, dlq_table)
    if isinstance(session, Connection):
        return _alchemy(session, None, table, dlq_table)
    return CallerConnection(Names.of(table, dlq_table), None, _commits_each(session), session, "dbapi")
