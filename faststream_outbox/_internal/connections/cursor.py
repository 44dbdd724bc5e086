"""A statement on the cursor below a SQLAlchemy connection, without what SQLAlchemy builds around every statement.

That is half of what publishing one message adds to a transaction. The cursor is the one that SQLAlchemy itself would
use: the same transaction, the same prepared statements and their settings, the same errors, and a dead connection is
taken out of the pool as ever. Taken only where nobody can see a difference: not where somebody listens (echo,
events such as those of OpenTelemetry's instrumentation), and not where SQLAlchemy would first have to begin a
transaction or to refuse the statement. What is read here of SQLAlchemy's is private: where it is missing, the answer
is no. Used by `caller`.
"""

from typing import Any, NoReturn

from sqlalchemy import Connection

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
    """Run a statement of a connection that `suits`; its rows."""
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
