"""Where a broker's messages live, as the rest of the broker sees it; and how another place takes over for a while.

A `Backend` is everything that depends on that place; `DatabaseBackend`, which the broker makes of its engine, has the
clients of both engines on PostgreSQL. Endpoints and routers ask `OutboxBrokerConfig` for it whenever they need it and
never keep it, so it can be replaced in two ways: for everybody, by assigning `own_backend` and `producer` of the
configuration; or, with `replaced`, for the running task and the tasks that it starts, while everybody else goes on with
the broker's own. What is published by others meanwhile is then not lost.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from faststream.exceptions import IncorrectState
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.broker._faststream import BrokerConfig, ProducerProto, UnderlyingDriverAnnotations
from faststream_outbox._internal.broker.topic import WITHOUT_LOG
from faststream_outbox._internal.events.recorder import MetricsRecorder
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.options import TerminalHook
from faststream_outbox._internal.schema.log_tables import LogTables

if TYPE_CHECKING:
    from faststream_outbox._internal.log.admin.groups import Groups
    from faststream_outbox._internal.log.admin.parked import Parking
    from faststream_outbox._internal.log.client import LogClient
    from faststream_outbox._internal.log.sharing.slots import Group
    from faststream_outbox._internal.log.worker import LogWorker
    from faststream_outbox._internal.relay.status import RelayAges


class Backend(Protocol):
    """What keeps messages and hands them to subscribers."""

    @property
    def client(self) -> OutboxClient:
        """The queues' half: workers, sessions of handlers, events."""
        ...

    @property
    def groups(self) -> "Groups":
        """Groups of topics, for operators."""
        ...

    @property
    def parked(self) -> "Parking":
        """What groups have deferred, for operators."""
        ...

    @property
    def relay_ages(self) -> "RelayAges | None":
        """How old what is not relayed yet is; None where relays do not run."""
        ...

    @property
    def reaches_other_brokers(self) -> bool:
        """Whether relays send what it holds, and subscribers that forward consume only while the other brokers run."""
        ...

    def make_topic_worker(
        self, groups: "Sequence[Group]", handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> "LogWorker | None":
        """What reads topics for a subscriber; None where messages come to it without a worker of its own."""
        ...

    def conflicted(self, *, reads_topic: bool) -> None:
        """A transaction of a handler was in conflict with another one: its isolation may be another than was known."""
        ...

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Raise `SchemaMismatch` if the tables are not as they should be."""
        ...


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a task sees in the place of a broker's own."""

    config: object
    backend: Backend
    producer: ProducerProto[Any]


_REPLACEMENTS: ContextVar[tuple[Replacement, ...]] = ContextVar("outbox_replacements", default=())


def replacement_for(config: object) -> Replacement | None:
    """What the running task sees in the place of the configuration's own, if anything."""
    for one in _REPLACEMENTS.get():
        if one.config is config:
            return one
    return None


@contextmanager
def replaced(config: object, backend: Backend, producer: ProducerProto[Any]) -> Generator[None, None, None]:
    """Let the running task and its children use these instead of the configuration's own."""
    before = _REPLACEMENTS.get()
    _REPLACEMENTS.set((*before, Replacement(config, backend, producer)))
    try:
        yield
    finally:
        _REPLACEMENTS.set(before)


class DatabaseBackend:
    """Queues and topics in PostgreSQL."""

    reaches_other_brokers = True

    def __init__(self, client: OutboxClient, log: "LogClient | None") -> None:
        self._client = client
        self._log = log
        self._relay_ages: RelayAges | None = None

    @property
    def client(self) -> OutboxClient:
        """The queues' half."""
        return self._client

    @property
    def log(self) -> "LogClient":
        """The topics' half."""
        if self._log is None:
            raise IncorrectState(WITHOUT_LOG)
        return self._log

    @property
    def groups(self) -> "Groups":
        """Groups of topics, for operators."""
        from faststream_outbox._internal.log.admin.groups import Groups

        return Groups(self.log)

    @property
    def parked(self) -> "Parking":
        """What groups have deferred, for operators."""
        from faststream_outbox._internal.log.admin.parked import Parking

        return Parking(self.log)

    @property
    def relay_ages(self) -> "RelayAges":
        """How old what is not relayed yet is."""
        from faststream_outbox._internal.relay.status import RelayAges

        if self._relay_ages is None:
            client, log = self._client, self._log
            self._relay_ages = RelayAges(client.engine, client.names, None if log is None else log.names)
        return self._relay_ages

    def make_topic_worker(
        self, groups: "Sequence[Group]", handle: Any, *, options: ReadOptions, members: int, batch: bool, name: str
    ) -> "LogWorker":
        """Members of groups."""
        from faststream_outbox._internal.log.worker import LogWorker

        return LogWorker(self.log, groups, handle, options=options, members=members, batch=batch, name=name)

    def conflicted(self, *, reads_topic: bool) -> None:
        """Look at the isolation again before the next transaction of a handler."""
        self._client.isolation.doubt()
        if reads_topic:
            self.log.isolation.doubt()

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that subscribers need is alive."""
        return self._client.is_healthy and (self._log is None or self._log.is_healthy)

    async def validate_schema(self, *, check_autovacuum: bool, check_rights: bool) -> None:
        """Compare the tables with what they should be."""
        from faststream_outbox._internal.schema.check import validate_log_schema, validate_schema

        client = self._client
        await validate_schema(
            client.engine,
            client.table,
            client.dlq_table,
            check_autovacuum=check_autovacuum,
            check_rights=check_rights,
        )
        if self._log is not None:
            await validate_log_schema(client.engine, self._log.tables, check_rights=check_rights)

    async def close(self) -> None:
        """Announce what was just committed, before the caller disposes of the engine; close the log's connections."""
        await self._client.wakeups.close()
        if self._log is not None:
            await self._log.close()
        if self._relay_ages is not None:
            await self._relay_ages.close()


@dataclass(kw_only=True)
class OutboxBrokerConfig(BrokerConfig):
    """What every endpoint of the broker shares."""

    engine: AsyncEngine | None = None
    owns_engine: bool = False
    """Whether the engine was made of an address, and is the broker's to close."""
    outbox_table: Table | None = None
    dlq_table: Table | None = None
    log_tables: LogTables | None = None
    log_client: "LogClient | None" = None
    autocommit: bool = False
    strict_key_order: bool = False
    on_terminal_failure: TerminalHook | None = None
    metrics_recorder: MetricsRecorder | None = None
    last_exception_renderer: Renderer | None = None
    own_backend: Backend | None = None
    """None where the broker has no engine. Endpoints ask for `backend`."""
    default_driver_annotations: UnderlyingDriverAnnotations = field(default_factory=dict)

    @property
    def backend(self) -> Backend:
        """Where messages live, for the running task."""
        other = replacement_for(self)
        backend = self.own_backend if other is None else other.backend
        if backend is None:
            msg = "The broker has no engine: pass it, OutboxBroker(engine, outbox_table=…), or use TestOutboxBroker."
            raise IncorrectState(msg)
        return backend

    @property
    def client(self) -> OutboxClient:
        """The queue engine's half of the broker, for the running task."""
        return self.backend.client

    @property  # type: ignore[misc]  # a field of FastStream's, which the setter takes
    def producer(self) -> ProducerProto[Any]:
        """What writes messages, for the running task."""
        other = replacement_for(self)
        return self._own_producer if other is None else other.producer

    @producer.setter
    def producer(  # pyright: ignore[reportIncompatibleVariableOverride]  # the same
        self, producer: ProducerProto[Any]
    ) -> None:
        """The broker's own; FastStream sets it."""
        self._own_producer = producer

    @property
    def log(self) -> "LogClient":
        """The log engine's half of the broker."""
        if self.log_client is None:
            raise IncorrectState(WITHOUT_LOG)
        return self.log_client
