"""Shortcuts for parameters of handlers that FastAPI resolves: the names of `faststream_outbox.annotations`.

`async def handle(msg: OutboxMessage, session: Annotated[AsyncSession, Depends(get_session)])`. They work with
`OutboxRouter` and with `faststream_fastapi`, whose own `Context` (version 1.4) looks for the message where FastStream
since 0.7.5 does not put it, and finds nothing. They resolve in the event loop: a dependency that is not a
coroutine would cost a thread for every message. In HTTP routes there is no message and no context; there, use
`router.broker`.
"""

from collections.abc import Callable
from logging import Logger as StandardLogger
from typing import Annotated, Any, NoReturn

from fastapi import params
from faststream.context import ContextRepo as Repository
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.broker._faststream import EMPTY, resolve_context_by_name
from faststream_outbox._internal.broker.broker import OutboxBroker as Broker
from faststream_outbox._internal.broker.context import SESSION
from faststream_outbox._internal.broker.message import OutboxBatchMessage as BatchMessage
from faststream_outbox._internal.broker.message import OutboxMessage as Message
from faststream_outbox._internal.broker.producer import OutboxProducer as Producer
from faststream_outbox._internal.inbox.session import MISSING
from faststream_outbox._internal.inbox.session import SESSION as INBOX_SESSION
from faststream_outbox._internal.queue.client import OutboxClient as Client
from faststream_outbox.errors import NoTransaction

__all__ = [
    "Context",
    "ContextRepo",
    "InboxSession",
    "Logger",
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxClient",
    "OutboxMessage",
    "OutboxProducer",
    "OutboxSession",
]


def Context(name: str, *, default: Any = EMPTY, initial: Callable[..., Any] | None = None) -> Any:  # noqa: N802 - FastStream's name
    """A value of FastStream's context, by its name, as a dependency of FastAPI's."""

    async def solve(context: Annotated[Any, params.Header(alias="context__", include_in_schema=False)]) -> Any:
        own = _of_message(context)
        return resolve_context_by_name(name=name, default=default, initial=initial, context=own)

    return params.Depends(solve, use_cache=True)


def _of_message(context: Repository) -> Repository:
    """The context that holds the message in flight: that of its broker, where the application's was handed over."""
    for broker in getattr(context.get("app"), "brokers", ()):
        own: Repository = broker.context
        if own.get_local("message") is not None:
            return own
    return context


def _refuse() -> NoReturn:
    msg = (
        "OutboxSession is the session of a handler's own transaction, and this subscriber opens none: "
        "register it with transactional=True, or take a session from Depends(...)."
    )
    raise NoTransaction(msg)


def _refuse_inbox() -> NoReturn:
    raise NoTransaction(MISSING)


InboxSession = Annotated[AsyncSession, Context(INBOX_SESSION, initial=_refuse_inbox)]
OutboxMessage = Annotated[Message, Context("message")]
OutboxBatchMessage = Annotated[BatchMessage, Context("message")]
OutboxBroker = Annotated[Broker, Context("broker")]
OutboxProducer = Annotated[Producer, Context("broker._producer")]
OutboxClient = Annotated[Client, Context("broker.client")]
OutboxSession = Annotated[AsyncSession, Context(SESSION, initial=_refuse)]
ContextRepo = Annotated[Repository, Context("context")]
Logger = Annotated[StandardLogger, Context("logger")]
