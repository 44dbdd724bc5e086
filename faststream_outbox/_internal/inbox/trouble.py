"""Troubles that are nobody's fault but the database's: the message comes again, whatever its subscriber's policy says.

A policy such as REJECT_ON_ERROR speaks of messages that cannot be handled. A connection that broke, a server that
restarts or a transaction that was in another's way says nothing about the message. Used by the middleware and by
`once`.
"""

import asyncio
import random

from faststream.exceptions import NackMessage
from sqlalchemy.exc import DBAPIError, InterfaceError, TimeoutError

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.rights import sqlstate_of
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox.errors import BeingHandled

PAUSE_SECONDS = 0.5
"""How long, on average, a message is held before it goes back: most brokers would bring it again at once."""
_TRANSIENT = ("08", "53", "40001", "40P01", "55P03", "57P0", "25006")


def is_transient(error: BaseException | None) -> bool:
    """Whether trying again may help: connections, resources, conflicts, locks, shutdowns."""
    if isinstance(error, BeingHandled | TimeoutError):
        # SQLAlchemy's own: the pool had no connection in time.
        return True
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError):
        return isinstance(error, ConnectionError)
    if isinstance(error, DBAPIError) and (error.connection_invalidated or isinstance(error, InterfaceError)):
        return True
    state = sqlstate_of(error)
    return state is not None and state.startswith(_TRANSIENT)


class ComesAgain(NackMessage):
    """The message goes back to its broker; raised to FastStream, never to a handler."""


async def put_off(inbox: Receiver, error: BaseException) -> ComesAgain:
    """What to raise for a transient error, after a pause."""
    if not isinstance(error, BeingHandled):
        inbox.events.emit(events.ConnectionLost("inbox", error))
    await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))
    return ComesAgain()
