"""Under which id and from which source a message of a FastStream broker came.

FastStream gives every message an id, and invents one where none was sent: a random one (RabbitMQ, Redis), the
correlation id, which whole chains of messages share (NATS), or offset and time, which two partitions of Kafka may have
in common. An invented id knows no message again, or takes two for one; so only what was sent counts: the
property of AMQP, the header `message_id`, and `Nats-Msg-Id`. Used by the middleware and by `once`.
"""

from typing import Any

from faststream.message import StreamMessage

from faststream_outbox._internal.inbox.key import Key
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox.errors import MissingMessageId

MESSAGE_ID = "message_id"
NATS_MESSAGE_ID = "Nats-Msg-Id"
_CHANNELS = ("subject", "topic", "channel", "queue", "stream")
"""Under which of these names a subscriber tells its log where a message came from; the first that it has."""

_HOW = {
    "rabbit": "publish(…, message_id=…)",
    "nats": "publish(…, headers={'message_id': …}), or 'Nats-Msg-Id'",
}


def broker_family(what: object) -> str:
    """The name of the broker that something belongs to: `nats`, `rabbit`, `kafka`, …, `outbox`; else the package's."""
    package, _, rest = type(what).__module__.partition(".")
    if package == "faststream_outbox":
        return "outbox"
    return rest.partition(".")[0] if package == "faststream" else package


def key_of(inbox: Receiver, message: StreamMessage[Any], subscriber: Any) -> Key:
    """The key of a message; raises where it has none."""
    source = source_of(subscriber, message) if inbox.source is None else inbox.source(message)
    if inbox.message_id is not None:
        return Key.of(inbox.consumer, source, inbox.message_id(message))
    found = given_id(message)
    if found is None:
        how = _HOW.get(broker_family(message), "publish(…, headers={'message_id': …})")
        msg = (
            f"A message of {source!r} came without an id, so that its next delivery would not be known: what "
            f"FastStream shows as its message_id was made up here. Send one with it: {how}; or say what it is known "
            "by: Inbox(…, message_id=lambda message: …)."
        )
        raise MissingMessageId(msg)
    return Key.of(inbox.consumer, source, found)


def given_id(message: StreamMessage[Any]) -> str | None:
    """The id that was sent with a message; None where FastStream has invented one."""
    match broker_family(message):
        case "outbox":
            return message.message_id
        case "rabbit":
            found = getattr(message.raw_message, MESSAGE_ID, None) or message.headers.get(MESSAGE_ID)
        case "nats":
            found = message.headers.get(MESSAGE_ID) or message.headers.get(NATS_MESSAGE_ID)
        case _:
            found = message.headers.get(MESSAGE_ID)
    if isinstance(found, bytes):
        found = found.decode(errors="replace")
    return str(found) if found else None


def source_of(subscriber: Any, message: StreamMessage[Any] | None) -> str:
    """The broker's channel: subject, topic, queue, list or stream, as its subscriber names it."""
    where = subscriber.get_log_context(message)
    return next((str(where[name]) for name in _CHANNELS if where.get(name)), "")
