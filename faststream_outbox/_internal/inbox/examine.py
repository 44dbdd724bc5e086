"""What a subscriber may have that the inbox cannot keep its promise with; found when it is registered, or at once.

`check` raises for all of it. A message that comes nevertheless is refused only where running its handler would be
wrong; where messages may be lost, and never taken twice, that is warned about once. Used by `Inbox.check`, the
middleware and `once`.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from faststream import AckPolicy

from faststream_outbox._internal.inbox.identity import broker_family, source_of
from faststream_outbox._internal.inbox.receiver import Receiver
from faststream_outbox.errors import InvalidOption, OutboxWarning

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
