"""The broker's configuration, as endpoints and routers read it: always late, through the composition.

The one place where endpoints find the backend and the producer: the broker's own, or what the running task was given
instead. See `backend`.
"""

from dataclasses import dataclass, field
from typing import Any

from faststream.exceptions import IncorrectState
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.broker._faststream import BrokerConfig, ProducerProto, UnderlyingDriverAnnotations
from faststream_outbox._internal.broker.backend import Backend, replacement_for
from faststream_outbox._internal.broker.topic import WITHOUT_LOG
from faststream_outbox._internal.events.recorder import MetricsRecorder
from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.options import TerminalHook
from faststream_outbox._internal.schema.log_tables import LogTables


@dataclass(kw_only=True)
class OutboxBrokerConfig(BrokerConfig):
    """What every endpoint of the broker shares."""

    engine: AsyncEngine | None = None
    owns_engine: bool = False
    """Whether the engine was made of an address, and is the broker's to close."""
    outbox_table: Table | None = None
    dlq_table: Table | None = None
    log_tables: LogTables | None = None
    log_client: LogClient | None = None
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
    def log(self) -> LogClient:
        """The log engine's half of the broker."""
        if self.log_client is None:
            raise IncorrectState(WITHOUT_LOG)
        return self.log_client
