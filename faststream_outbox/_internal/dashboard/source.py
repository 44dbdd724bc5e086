"""What a dashboard is about: the questions it asks and the calls that its buttons make.

Made from a broker, or from an engine and tables; the calls are those that applications and the command line have. A
broker of this process adds its subscribers, its relays, and workers that hear of a change at once. Used by `screens`.

An error as an operator reads it: what happened and what to do, without what it might quote. Used by all screens.
"""

import logging

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.connections.cause import REFUSED, sqlstate_of
from faststream_outbox._internal.doctor.doctor import Doctor
from faststream_outbox._internal.log.admin.positions import Place
from faststream_outbox._internal.log.outbox import Outbox
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.overview.overview import Overview
from faststream_outbox._internal.publish.put import cancel_timer
from faststream_outbox._internal.queue import pause as pausing
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.dead_letters import DeadLetters
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType, OutboxError


class Source:
    """Answers and calls, for one database."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: Tables,
        *,
        broker: OutboxBroker | None = None,
        timeout: float,
    ) -> None:
        if tables.table is None and tables.log_tables is None:
            msg = "A dashboard needs tables: pass table=make_outbox_table(metadata), or log_tables=, or a broker."
            raise InvalidOption(msg)
        self.engine, self.tables, self.broker = engine, tables, broker
        self.timeout = timeout
        """Seconds that one question may take."""
        self.overview = Overview(engine, **tables.keywords(), timeout=timeout)
        self._client = _client(engine, tables, broker)
        log = tables.log_tables
        self._outbox = None if log is None else Outbox(engine, tables=log, listen=False)

    @property
    def queues(self) -> OutboxClient:
        """The client of the queues; refused where there are none."""
        if self._client is None:
            msg = "This dashboard has no queues: make it with table=."
            raise InvalidOption(msg)
        return self._client

    @property
    def dead_letters(self) -> DeadLetters:
        """Dead letters, to replay and to purge."""
        return DeadLetters(self.queues)

    @property
    def topics(self) -> Outbox:
        """Groups and what they deferred; refused where there are no topics."""
        if self._outbox is None:
            msg = "This dashboard has no topics: make it with log_tables=."
            raise InvalidOption(msg)
        return self._outbox

    def doctor(self) -> Doctor:
        """Examines the database."""
        return Doctor(self.engine, **self.tables.keywords(), timeout=self.timeout)

    async def pause(self, queue: str) -> bool:
        """Pause a queue in every process; False if it was paused."""
        if self.broker is not None:
            return await self.broker.pause(queue)
        return await pausing.pause(self.queues, queue)

    async def resume(self, queue: str) -> bool:
        """Resume a queue in every process; False if it was not paused."""
        if self.broker is not None:
            return await self.broker.resume(queue)
        return await pausing.resume(self.queues, queue)

    async def cancel_timer(self, queue: str, timer_id: str) -> bool:
        """Take a timer back; False if it is gone or runs."""
        table, wakeups = self.queues.table, self.queues.wakeups
        async with AsyncSession(self.engine) as session, session.begin():
            return await cancel_timer(session, table, queue=queue, timer_id=timer_id, wakeups=wakeups)

    async def seek(self, place: Place, group: str, uri: str) -> Cursor:
        """Put a group elsewhere."""
        async with AsyncSession(self.engine) as session, session.begin():
            return await self.topics.seek(session, place, group, uri)

    async def rest(self) -> None:
        """Close connections that nobody needs for now; the next question opens them again."""
        await self.overview.close()
        if self._outbox is not None:
            await self._outbox.cleanup()


def source_of(given: object, tables: Tables, *, timeout: float) -> Source:
    """The source for a broker, or for an engine and its tables."""
    if isinstance(given, OutboxBroker):
        if tables.table is not None or tables.dlq_table is not None or tables.log_tables is not None:
            msg = "The broker knows its tables: pass only inbox_table= with it."
            raise InvalidOption(msg)
        config = given.config.broker_config
        of_broker = Tables(config.outbox_table, config.dlq_table, config.log_tables, tables.inbox_table)
        return Source(given.engine, of_broker, broker=given, timeout=timeout)
    if isinstance(given, AsyncEngine):
        return Source(given, tables, timeout=timeout)
    msg = (
        f"make_dashboard takes an OutboxBroker, or an AsyncEngine and tables, not a {type(given).__name__}."
        " Of a FastAPI router, pass router.broker."
    )
    raise InvalidOptionType(msg)


def _client(engine: AsyncEngine, tables: Tables, broker: OutboxBroker | None) -> OutboxClient | None:
    if broker is not None:
        return broker.client
    if tables.table is None:
        return None
    return OutboxClient(engine, tables.table, dlq_table=tables.dlq_table, listen=False, watch=False)


logger = logging.getLogger("faststream_outbox.dashboard")

INVALID = (InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType)
"""What is said of a field that cannot be right."""
_MISSING = {"42P01", "42703", "3F000"}
_CANCELLED = "57014"


def describe(error: BaseException) -> str:
    """One sentence or two."""
    if isinstance(error, OutboxError):
        return str(error)
    state = sqlstate_of(error)
    if state == REFUSED:
        return (
            f"{_first_line(error)}. GRANT the dashboard's role what it needs for this: docs/security.md has the list."
        )
    if state in _MISSING:
        return "A table or a column is missing: run your migrations; validate_schema() lists what differs."
    if isinstance(error, TimeoutError) or state == _CANCELLED:
        return "The database took too long to answer this."
    if isinstance(error, OSError) or (state is not None and state[:2] in ("08", "57")):
        return "The database does not answer."
    logger.error("A question or an action of the dashboard failed.", exc_info=error)
    return f"It failed with {type(error).__name__}; the log has the details."


def _first_line(error: BaseException) -> str:
    """What the server says of a missing right: names of objects and nothing else."""
    origin = getattr(error, "orig", None) or error
    line = (str(origin).splitlines() or ["permission denied"])[0]
    return line.rpartition(">: ")[2].rstrip(".").capitalize()
