"""What a subscriber may not have where the inbox is to keep its promise, and under which id a message came.

`check` raises for all of it. A message that comes nevertheless is refused only where running its handler would be
wrong; where messages may be lost, and never taken twice, that is warned about once.

FastStream gives every message an id, and invents one where none was sent: a random one (RabbitMQ, Redis), the
correlation id, which whole chains of messages share (NATS), or offset and time, which two partitions of Kafka may have
in common. An invented id knows no message again, or takes two for one; so only what was sent counts: the property of
AMQP, the header `message_id`, and `Nats-Msg-Id`. Used by `Inbox.check`, the middleware and `once`.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from faststream import AckPolicy
from faststream.message import StreamMessage

from faststream_outbox._internal.inbox.receipt import Key
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox.errors import InvalidOption, MissingMessageId, OutboxWarning

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


_ACK_FIRST = (
    "acknowledges before its handler runs (AckPolicy.ACK_FIRST, the default of Kafka): a message is lost when the "
    "process dies before the commit. Use ack_policy=AckPolicy.NACK_ON_ERROR"
)
_BATCH = (
    "takes batches, and an inbox knows single messages. Take them one by one, or open a receipt for each in the "
    "handler: `async with inbox.receive(message_id, source=…)`"
)
_OUTBOX = (
    "returns to a publisher of the outbox, and keep_response commits before that. Publish in the handler: "
    "broker.publish(…, session=session)"
)
_SEEN: WeakKeyDictionary[Receiver, WeakKeyDictionary[Any, str]] = WeakKeyDictionary()
"""The subscribers that each inbox has examined, and their sources."""


def check(inbox: Receiver, brokers: Sequence[Any]) -> None:
    """Refuse brokers with a subscriber for which the promise does not hold."""
    subscribers = [subscriber for broker in brokers for subscriber in broker.subscribers]
    sources: dict[str, Any] = {}
    problems: list[str] = []
    for subscriber in subscribers:
        source = source_of(subscriber, None)
        found = [*_wrong(subscriber, keeps=inbox.keep_response), *_lossy(subscriber)]
        if inbox.source is None and source in sources and _calls(sources[source]) != _calls(subscriber):
            found.append(_shared(inbox, source))
        sources.setdefault(source, subscriber)
        problems += [f"The subscriber of {source!r} {problem}." for problem in found]
    if problems:
        raise InvalidOption("\n".join(problems))


def examine(inbox: Receiver, subscriber: Any, *, keeps: bool | None = None) -> None:
    """Refuse a message of a subscriber whose handler must not run, and warn once about one that may lose messages."""
    seen = _SEEN.setdefault(inbox, WeakKeyDictionary())
    if subscriber in seen:
        return
    source = source_of(subscriber, None)
    found = [*_wrong(subscriber, keeps=inbox.keep_response if keeps is None else keeps)]
    others = [other for other, of in seen.items() if of == source and _calls(other) != _calls(subscriber)]
    if inbox.source is None and others:
        found.append(_shared(inbox, source))
    if found:
        raise InvalidOption("\n".join(f"The subscriber of {source!r} {problem}." for problem in found))
    seen[subscriber] = source
    for problem in _lossy(subscriber):
        warnings.warn(f"The subscriber of {source!r} {problem}.", OutboxWarning, stacklevel=2)


def _wrong(subscriber: Any, *, keeps: bool) -> Iterator[str]:
    # As FastStream itself knows a subscriber of batches.
    if getattr(subscriber._decoder, "__name__", "") == "decode_batch":
        yield _BATCH
    publishers = [publisher for call in subscriber.calls for publisher in call.handler._publishers]
    if keeps and any(broker_family(publisher) == "outbox" for publisher in publishers):
        yield _OUTBOX


def _lossy(subscriber: Any) -> Iterator[str]:
    # A push subscriber of JetStream says MANUAL instead, and leaves acknowledging to its client.
    leaves_it = (getattr(subscriber, "extra_options", None) or {}).get("manual_ack") is False
    if leaves_it or subscriber.ack_policy is AckPolicy.ACK_FIRST:
        yield _ACK_FIRST


def _shared(inbox: Receiver, source: str) -> str:
    return (
        f"is the second of this source for the consumer {inbox.consumer!r}: a message would be handled by one of the "
        f"two and be a duplicate to the other. Give each an inbox of its own: Inbox(…, consumer='…')"
    )


def _calls(subscriber: Any) -> list[Any]:
    return [call.handler._declared_call for call in subscriber.calls]
