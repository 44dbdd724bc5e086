"""What a dashboard is about, and an error as whoever looks at it reads it.

`source_of` makes an `Operator` of a broker, or of an engine and tables; what it lacks is refused with the keyword of
`make_dashboard`. `describe` says what happened and what to do, without what the error might quote. Used by `dashboard`
and by all screens.
"""

import logging
from collections.abc import Mapping

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.cause import CANCELLED, MISSING, REFUSED, first_line, has_state
from faststream_outbox._internal.operator import Kind, Operator
from faststream_outbox._internal.options import check_seconds
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType, OutboxError

_LACKS: Mapping[Kind, str] = {
    "queues": "This dashboard has no queues: make it with table=.",
    "dead letters": "There is no dead-letter table: pass dlq_table=make_dlq_table(metadata) to the client.",
    "topics": "This dashboard has no topics: make it with log_tables=.",
    "receipts": "This dashboard has no receipts: make it with inbox_table=.",
}


def source_of(given: object, tables: Tables, *, timeout: float) -> Operator:
    """What a dashboard asks and calls, for a broker, or for an engine and its tables."""
    # Imported here, because a dashboard of an engine needs no FastStream.
    from faststream_outbox._internal.broker.broker import OutboxBroker

    if isinstance(given, OutboxBroker):
        if tables.table is not None or tables.dlq_table is not None or tables.log_tables is not None:
            msg = "The broker knows its tables: pass only inbox_table= with it."
            raise InvalidOption(msg)
        config = given.config.broker_config
        of_broker = Tables(config.outbox_table, config.dlq_table, config.log_tables, tables.inbox_table)
        return _source(given.engine, of_broker, given, timeout)
    if isinstance(given, AsyncEngine):
        return _source(given, tables, None, timeout)
    msg = (
        f"make_dashboard takes an OutboxBroker, or an AsyncEngine and tables, not a {type(given).__name__}."
        " Of a FastAPI router, pass router.broker."
    )
    raise InvalidOptionType(msg)


def _source(engine: AsyncEngine, tables: Tables, broker: object, timeout: float) -> Operator:
    if tables.table is None and tables.log_tables is None:
        msg = "A dashboard needs tables: pass table=make_outbox_table(metadata), or log_tables=, or a broker."
        raise InvalidOption(msg)
    check_seconds("timeout", timeout)
    log = logging.getLogger("faststream_outbox")
    return Operator(engine, tables, broker=broker, timeout=timeout, missing=_missing, log=log)


def _missing(kind: Kind) -> InvalidOption:
    return InvalidOption(_LACKS[kind])


logger = logging.getLogger("faststream_outbox.dashboard")

INVALID = (InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType)
"""What is said of a field that cannot be right."""
_UNDEFINED_FUNCTION = "42883"
"""What is missing then is no table, and no migration of ours brings it."""


def describe(error: BaseException) -> str:
    """One sentence or two."""
    if isinstance(error, OutboxError):
        return str(error)
    if has_state(error, REFUSED):
        # It has names of objects and nothing else.
        refused = first_line(error).rstrip(".").capitalize()
        return f"{refused}. GRANT the dashboard's role what it needs for this: docs/security.md has the list."
    if has_state(error, *MISSING) and not has_state(error, _UNDEFINED_FUNCTION):
        return "A table or a column is missing: run your migrations; validate_schema() lists what differs."
    if isinstance(error, TimeoutError) or has_state(error, CANCELLED):
        return "The database took too long to answer this."
    if isinstance(error, OSError) or has_state(error, "08", "57"):
        return "The database does not answer."
    logger.error("A question or an action of the dashboard failed.", exc_info=error)
    return f"It failed with {type(error).__name__}; the log has the details."
