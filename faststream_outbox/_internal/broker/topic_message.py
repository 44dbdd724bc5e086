"""From commands to messages of the log: the headers, what a topic refuses, and the event that reports it.

Called by the producers.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from uuid import UUID

from faststream_outbox._internal.broker.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO
from faststream_outbox._internal.broker.response import OutboxPublishCommand, correlation_among
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import Published
from faststream_outbox._internal.log.message import EVENT_ID
from faststream_outbox._internal.log.message import OutboxMessage as TopicMessage
from faststream_outbox._internal.log.sharing.slots import uri_of
from faststream_outbox.errors import InvalidMessage


def headers_of(cmd: OutboxPublishCommand, content_type: str | None, correlation_id: str | None) -> dict[str, Any]:
    """The command's headers, with what the encoded body and the command say besides."""
    headers = dict(cmd.headers or {})
    given = headers.get(CONTENT_TYPE)
    if content_type and given is not None and given != content_type:
        msg = f"The header {CONTENT_TYPE!r} says {given!r}, but the body was encoded as {content_type!r}."
        raise InvalidMessage(msg)
    if content_type:
        headers[CONTENT_TYPE] = content_type
    known = correlation_among(headers)
    if known is not None and correlation_id is not None and known != correlation_id:
        msg = f"correlation_id is {correlation_id!r}, but the header says {known!r}. Give it once."
        raise InvalidMessage(msg)
    if correlation_id is not None:
        headers[CORRELATION_ID] = correlation_id
    if cmd.reply_to:
        headers[REPLY_TO] = cmd.reply_to
    return headers


def topic_message(
    cmd: OutboxPublishCommand,
    payload: bytes,
    content_type: str | None,
    *,
    correlation_id: str | None,
    key: str | None,
    message_id: UUID | None,
) -> TopicMessage:
    """The command with an encoded body, as a message of the log; refuses what only queues can do."""
    metadata = headers_of(cmd, content_type, correlation_id)
    given = {
        "priority": cmd.priority or None,
        "activate_in": cmd.activate_in,
        "activate_at": cmd.activate_at,
        "timer_id": cmd.timer_id,
    }
    for name, value in given.items():
        if value is not None:
            msg = f"A topic takes no {name}: every group reads its messages in the order of their commits. Use a queue."
            raise InvalidMessage(msg)
    if message_id is not None:
        metadata[EVENT_ID] = str(message_id)
    return TopicMessage(uri_of(cmd.destination, key), payload, metadata)


@contextmanager
def reporting(
    events: Events, topic: str, messages: Sequence[TopicMessage]
) -> Generator[Callable[[], None], None, None]:
    """Report messages that could not be written to a topic; gives what reports that they were committed."""
    began = perf_counter()

    def report(error: BaseException | None = None) -> None:
        if Published in events:
            size = sum(len(message.payload) for message in messages)
            events.emit(Published(topic, len(messages), size, perf_counter() - began, error))

    try:
        yield report
    except BaseException as problem:
        report(problem)
        raise
