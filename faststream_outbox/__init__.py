"""A transactional outbox on PostgreSQL: commit an event together with your data, and it will be delivered.

The public names, each imported when it is first used, so that the engines work in a process without
FastStream.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faststream_outbox.broker import (
        OutboxBatchMessage,
        OutboxBroker,
        OutboxMessage,
        OutboxPublisher,
        OutboxResponse,
        OutboxRoute,
        OutboxRoutePublisher,
        OutboxRouter,
    )
    from faststream_outbox.envelope import Envelope, TimerConflict
    from faststream_outbox.events.recorder import MetricsRecorder
    from faststream_outbox.inbox import Inbox, Receipt, SyncInbox, SyncReceipt
    from faststream_outbox.janitor import Retention
    from faststream_outbox.outcomes.retry import (
        ConstantRetry,
        ExponentialRetry,
        LinearRetry,
        NoRetry,
        RetryStrategyProto,
    )
    from faststream_outbox.schema import (
        make_dlq_table,
        make_inbox_table,
        make_outbox_table,
        outbox_autovacuum_ddl,
        outbox_autovacuum_rollback_ddl,
    )
    from faststream_outbox.testing import TestOutboxBroker

__version__ = "1.0.0.dev0"
# Written here and not read from what is installed: a checkout on the path is right about itself too.

_HOMES = {
    "ConstantRetry": "outcomes.retry",
    "Envelope": "envelope",
    "ExponentialRetry": "outcomes.retry",
    "Inbox": "inbox",
    "LinearRetry": "outcomes.retry",
    "MetricsRecorder": "events.recorder",
    "NoRetry": "outcomes.retry",
    "OutboxBatchMessage": "broker",
    "OutboxBroker": "broker",
    "OutboxMessage": "broker",
    "OutboxPublisher": "broker",
    "OutboxResponse": "broker",
    "OutboxRoute": "broker",
    "OutboxRoutePublisher": "broker",
    "OutboxRouter": "broker",
    "Receipt": "inbox",
    "Retention": "janitor",
    "RetryStrategyProto": "outcomes.retry",
    "SyncInbox": "inbox",
    "SyncReceipt": "inbox",
    "TestOutboxBroker": "testing",
    "TimerConflict": "envelope",
    "make_dlq_table": "schema",
    "make_inbox_table": "schema",
    "make_outbox_table": "schema",
    "outbox_autovacuum_ddl": "schema",
    "outbox_autovacuum_rollback_ddl": "schema",
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
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
