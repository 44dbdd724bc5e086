"""FastAPI: handlers of messages with FastAPI's `Depends`, and the shortcuts for their parameters.

Two ways lead there, and the names of this module work in both: `OutboxRouter` below, which brings its own
broker, and `faststream_fastapi.FastStreamAPI(broker, application=FastAPI())`, which takes an `OutboxBroker`.
FastStream means to drop the base of the first in its version 1.0. Handlers on a plain
`faststream_outbox.OutboxRouter` can be included either way without a change.
"""

from faststream_outbox._internal.fastapi import (
    Context,
    ContextRepo,
    InboxSession,
    Logger,
    OutboxBatchMessage,
    OutboxBroker,
    OutboxClient,
    OutboxMessage,
    OutboxProducer,
    OutboxRouter,
    OutboxSession,
    health_router,
)

OutboxAPIRouter = OutboxRouter
"""The same under a name that nothing else has: the router without FastAPI is `faststream_outbox.OutboxRouter`."""

__all__ = [
    "Context",
    "ContextRepo",
    "InboxSession",
    "Logger",
    "OutboxAPIRouter",
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxClient",
    "OutboxMessage",
    "OutboxProducer",
    "OutboxRouter",
    "OutboxSession",
    "health_router",
]
