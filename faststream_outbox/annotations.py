"""Shortcuts for handler parameters: `async def handle(msg: OutboxMessage, broker: OutboxBroker)`.

They resolve in the event loop. FastStream's plain `Context` goes through a thread, which costs more
than all the rest of handling a message; use `Context` from here for your own.
"""

from logging import Logger as StandardLogger
from typing import Annotated, NoReturn

from faststream.context import ContextRepo as Repository
from faststream.params import NoCast
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.broker.broker import OutboxBroker as Broker
from faststream_outbox._internal.broker.message import SESSION, Context
from faststream_outbox._internal.broker.message import OutboxBatchMessage as BatchMessage
from faststream_outbox._internal.broker.message import OutboxMessage as Message
from faststream_outbox._internal.broker.producer import OutboxProducer as Producer
from faststream_outbox._internal.inbox.receipt import MISSING
from faststream_outbox._internal.inbox.receipt import SESSION as INBOX_SESSION
from faststream_outbox._internal.queue.client import OutboxClient as Client
from faststream_outbox.errors import SessionRequired

__all__ = [
    "Context",
    "ContextRepo",
    "InboxSession",
    "Logger",
    "NoCast",
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxClient",
    "OutboxMessage",
    "OutboxProducer",
    "OutboxSession",
]


def _refuse() -> NoReturn:
    raise SessionRequired(MISSING)


InboxSession = Annotated[AsyncSession, Context(INBOX_SESSION, initial=_refuse)]
"""The `AsyncSession` whose transaction has the receipt of the inbox."""
OutboxMessage = Annotated[Message, Context("message")]
"""The message."""
OutboxBatchMessage = Annotated[BatchMessage, Context("message")]
"""The batch."""
OutboxBroker = Annotated[Broker, Context("broker")]
"""The broker that the message came from."""
OutboxProducer = Annotated[Producer, Context("broker._producer")]
"""What the broker publishes by."""
OutboxClient = Annotated[Client, Context("broker.client")]
"""What the broker's workers share: `pause`, connections, health."""
OutboxSession = Annotated[AsyncSession, Context(SESSION)]
"""The `AsyncSession` of a transactional handler: what it writes commits with the message."""
ContextRepo = Annotated[Repository, Context("context")]
"""FastStream's context."""
Logger = Annotated[StandardLogger, Context("logger")]
"""The broker's logger."""
