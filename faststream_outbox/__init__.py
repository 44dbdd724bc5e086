"""A transactional outbox on PostgreSQL: commit an event together with your data, and it will be delivered.

The public names, each imported when it is first used, so that the engines work in a process without
FastStream.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faststream_outbox._internal.broker.broker import OutboxBroker
    from faststream_outbox._internal.broker.message import OutboxBatchMessage, OutboxMessage
    from faststream_outbox._internal.broker.publisher import OutboxPublisher
    from faststream_outbox._internal.broker.response import OutboxResponse
    from faststream_outbox._internal.broker.router import OutboxRoute, OutboxRoutePublisher, OutboxRouter
    from faststream_outbox._internal.envelope import Envelope, TimerConflict
    from faststream_outbox._internal.events.recorder import MetricsRecorder
    from faststream_outbox._internal.inbox.inbox import Inbox
    from faststream_outbox._internal.inbox.receipt import Receipt, SyncReceipt
    from faststream_outbox._internal.inbox.sync import SyncInbox
    from faststream_outbox._internal.janitor import Retention
    from faststream_outbox._internal.outcomes.retry import (
        ConstantRetry,
        ExponentialRetry,
        LinearRetry,
        NoRetry,
        RetryStrategyProto,
    )
    from faststream_outbox._internal.schema.autovacuum import outbox_autovacuum_ddl, outbox_autovacuum_rollback_ddl
    from faststream_outbox._internal.schema.tables import make_dlq_table, make_inbox_table, make_outbox_table
    from faststream_outbox._internal.testing.broker import TestOutboxBroker

__version__ = "1.0.0.dev0"
# Written here and not read from what is installed: a checkout on the path is right about itself too.

_HOMES = {
    "ConstantRetry": "outcomes.retry",
    "Envelope": "envelope",
    "ExponentialRetry": "outcomes.retry",
    "Inbox": "inbox.inbox",
    "LinearRetry": "outcomes.retry",
    "MetricsRecorder": "events.recorder",
    "NoRetry": "outcomes.retry",
    "OutboxBatchMessage": "broker.message",
    "OutboxBroker": "broker.broker",
    "OutboxMessage": "broker.message",
    "OutboxPublisher": "broker.publisher",
    "OutboxResponse": "broker.response",
    "OutboxRoute": "broker.router",
    "OutboxRoutePublisher": "broker.router",
    "OutboxRouter": "broker.router",
    "Receipt": "inbox.receipt",
    "Retention": "janitor",
    "RetryStrategyProto": "outcomes.retry",
    "SyncInbox": "inbox.sync",
    "SyncReceipt": "inbox.receipt",
    "TestOutboxBroker": "testing.broker",
    "TimerConflict": "envelope",
    "make_dlq_table": "schema.tables",
    "make_inbox_table": "schema.tables",
    "make_outbox_table": "schema.tables",
    "outbox_autovacuum_ddl": "schema.autovacuum",
    "outbox_autovacuum_rollback_ddl": "schema.autovacuum",
}

__all__ = [
    "ConstantRetry",
    "Envelope",
    "ExponentialRetry",
    "Inbox",
    "LinearRetry",
    "MetricsRecorder",
    "NoRetry",
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxMessage",
    "OutboxPublisher",
    "OutboxResponse",
    "OutboxRoute",
    "OutboxRoutePublisher",
    "OutboxRouter",
    "Receipt",
    "Retention",
    "RetryStrategyProto",
    "SyncInbox",
    "SyncReceipt",
    "TestOutboxBroker",
    "TimerConflict",
    "make_dlq_table",
    "make_inbox_table",
    "make_outbox_table",
    "outbox_autovacuum_ddl",
    "outbox_autovacuum_rollback_ddl",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f"{__name__}._internal.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
