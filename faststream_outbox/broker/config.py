"""The broker's configuration, as endpoints and routers read it: always late, through the composition."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from faststream import UnderlyingDriverAnnotation
from faststream.exceptions import IncorrectState
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.broker._faststream import BrokerConfig, UnderlyingDriverAnnotations
from faststream_outbox.broker.stand_in import stand_in
from faststream_outbox.broker.topic import WITHOUT_LOG
from faststream_outbox.events.recorder import MetricsRecorder
from faststream_outbox.outcomes.failure import Renderer
from faststream_outbox.queue.options import TerminalHook
from faststream_outbox.schema.log_tables import LogTables

if TYPE_CHECKING:
    from faststream_outbox.log.client import LogClient
    from faststream_outbox.queue.client import OutboxClient


def driver_annotations() -> UnderlyingDriverAnnotations:
    # Late, because the annotations know the broker.
    annotations = import_module("faststream_outbox.annotations")
    broker = import_module("faststream_outbox.broker.broker")
    message = import_module("faststream_outbox.broker.message")

    def shortcut(name: str) -> UnderlyingDriverAnnotation:
        return UnderlyingDriverAnnotation(
            type_hint=getattr(annotations, name), module="faststream_outbox.annotations", name=name
        )

    return {
        broker.OutboxBroker: shortcut("OutboxBroker"),
        message.OutboxMessage: shortcut("OutboxMessage"),
        AsyncSession: shortcut("OutboxSession"),
    }


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
    shared_client: "OutboxClient | None" = None
    default_driver_annotations: UnderlyingDriverAnnotations = field(default_factory=dict)

    @property
    def client(self) -> "OutboxClient":
        """The engine's half of the broker."""
        other = stand_in(self)
        if other is not None:
            return other.client
        if self.shared_client is None:
            msg = "The broker has no engine: pass it, OutboxBroker(engine, outbox_table=…), or use TestOutboxBroker."
            raise IncorrectState(msg)
        return self.shared_client

    @property
    def in_memory(self) -> bool:
        """Whether the test broker stands in: topics are then delivered as they are published."""
        other = stand_in(self)
        client = self.shared_client if other is None else other.client
        return client is not None and client.is_in_memory

    @property
    def log(self) -> "LogClient":
        """The log engine's half of the broker."""
        if self.log_client is None:
            raise IncorrectState(WITHOUT_LOG)
        return self.log_client
