"""Messages as handlers see them: ack, nack and reject become decisions on the claim.

A decision is not yet written when `ack()` returns: the engine writes it, with many others, after the
handler. The first decision counts. A claim without one is settled by the subscriber's policy.

From claims to messages. Takes any row: what is odd about it must not keep it from being settled.

What handlers find in FastStream's context: the names there, and a `Context` that stays in the event loop.

`faststream_outbox.annotations` makes the shortcuts of it that applications use.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from faststream.context import Context as PlainContext
from faststream.message import StreamMessage, decode_message
from faststream.types import DecodedMessage

from faststream_outbox._internal.broker._faststream import json_loads
from faststream_outbox._internal.broker.warn import warn_about_late_decision
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.outcomes.outcome import DONE, Dead, Outcome, Retry, Undecided
from faststream_outbox._internal.queue.claim import Claim

REPLY_TO = "reply_to"
CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"

Received = Claim | Delivery
"""What the engines hand over: a claimed message of a queue, or a delivered one of a topic."""


class OutboxMessage(StreamMessage[Received]):
    """One message."""

    async def ack(self) -> None:
        """Done: it leaves the queue, or is behind the group."""
        _decide(self.raw_message, DONE, "ack()")
        await super().ack()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed: try again after `delay` seconds, or as the retry strategy says."""
        _decide(self.raw_message, Retry(delay, self.raw_message.error, counts), "nack()")
        await super().nack()

    async def snooze(self, delay: float) -> None:
        """Not now: come again after `delay` seconds; uses up neither an attempt nor a delivery."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good: a dead letter, or deleted where there is no table for those; parked in a topic."""
        _decide(self.raw_message, Dead(error=self.raw_message.error), "reject()")
        await super().reject()


class OutboxBatchMessage(StreamMessage[Sequence[Received]]):
    """A batch: a decision on it holds for each message that has none of its own; see `messages`."""

    @cached_property
    def messages(self) -> Sequence[OutboxMessage]:
        """A message of each claim; made when asked for, because most handlers want the bodies alone."""
        made = [parsed(claim) for claim in self.raw_message]
        for message in made:
            message.committed = self.committed
        return made

    @cached_property
    def batch_headers(self) -> list[dict[str, Any]]:  # type: ignore[override]  # FastStream assigns it: see __init__
        """The headers of each message; made when asked for."""
        return [{**claim.headers, CORRELATION_ID: correlation_of(claim)} for claim in self.raw_message]

    def __init__(self, raw_message: Sequence[Received], body: list[bytes], **facts: Any) -> None:
        super().__init__(raw_message, body, **facts)
        # FastStream's constructor has put an empty list in its place.
        del self.__dict__["batch_headers"]

    def contents(self) -> Iterable[Any]:
        """The bodies with their content types, as a decoder wants them."""
        if "messages" in self.__dict__:
            return self.messages
        return map(Content, self.raw_message)

    def _decide(self, outcome: Callable[[Received], Outcome], what: str) -> None:
        for claim in self.raw_message:
            _decide(claim, outcome(claim), what)

    async def ack(self) -> None:
        """Done with all that are left."""
        self._decide(lambda claim: DONE, "ack()")
        await super().ack()
        self._commit()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed with all that are left."""
        self._decide(lambda claim: Retry(delay, claim.error, counts), "nack()")
        await super().nack()
        self._commit()

    async def snooze(self, delay: float) -> None:
        """Not now, for all that are left."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good with all that are left."""
        self._decide(lambda claim: Dead(error=claim.error), "reject()")
        await super().reject()
        self._commit()

    def _commit(self) -> None:
        for message in self.__dict__.get("messages", ()):
            message.committed = message.committed or self.committed


def _decide(claim: Received, outcome: Outcome, what: str) -> None:
    if isinstance(claim.decision, Undecided):
        warn_about_late_decision(what)
    claim.decide(outcome)


class Content:
    """A body and its content type."""

    __slots__ = ("body", "content_type")

    def __init__(self, claim: Received) -> None:
        self.body = claim.payload
        self.content_type = content_type_of(claim)


def parsed(claim: Received) -> OutboxMessage:
    """A message of the claim."""
    headers, correlation_id = claim.headers, correlation_of(claim)
    if CORRELATION_ID not in headers:
        # Where nobody gave one, it is the message's own id, which is not stored twice.
        headers = {**headers, CORRELATION_ID: correlation_id}
    return OutboxMessage(
        raw_message=claim,
        body=claim.payload,
        headers=headers,
        reply_to=str(headers.get(REPLY_TO) or ""),
        content_type=content_type_of(claim),
        correlation_id=correlation_id,
        message_id=str(claim.message_id),
    )


def content_type_of(claim: Received) -> str | None:
    """How the body is to be read."""
    if isinstance(claim, Delivery) and claim.is_json:
        return "application/json"
    content_type = claim.headers.get(CONTENT_TYPE)
    return content_type if isinstance(content_type, str) else None


def correlation_of(claim: Received) -> str:
    """The correlation id that a claim carries, or its own id."""
    value: Any = claim.headers.get(CORRELATION_ID)
    return str(value) if value else str(claim.message_id)


JSON = "application/json"


class OutboxParser:
    """Parses and decodes one message."""

    async def parse_message(self, claim: Received) -> OutboxMessage:
        """A message of the claim."""
        return parsed(claim)

    async def decode_message(self, message: StreamMessage[Received]) -> DecodedMessage:
        """The body by its content type."""
        return decoded(message)


class OutboxBatchParser:
    """Parses and decodes a batch."""

    async def parse_batch(self, claims: Sequence[Received]) -> OutboxBatchMessage:
        """One message for all claims, with one of each inside."""
        first = parsed(claims[0])
        return OutboxBatchMessage(
            raw_message=claims,
            body=[claim.payload for claim in claims],
            headers=first.headers,
            reply_to=first.reply_to,
            content_type=first.content_type,
            correlation_id=first.correlation_id,
            message_id=first.message_id,
        )

    # FastStream knows a batch subscriber by this name.
    async def decode_batch(self, batch: OutboxBatchMessage) -> list[DecodedMessage]:
        """The bodies by their content types."""
        return [decoded(each) for each in batch.contents()]


def decoded(content: Any) -> DecodedMessage:
    """The body of a message or `Content` by its type, as FastStream reads it; JSON, the most frequent, sooner."""
    if content.content_type == JSON:
        value: DecodedMessage = json_loads(content.body)
        return value
    try:
        return decode_message(content)
    except (ValueError, RecursionError):
        # Nobody said that it is JSON: thousands of digits or brackets are bytes then, as other bytes are.
        if content.content_type:
            raise
        body: bytes = content.body
        return body


SESSION = "outbox_session"
"""Where a transactional handler's session stands."""


class Context(PlainContext):
    """FastStream's `Context`, resolved without leaving the event loop."""

    async def use(self, /, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # the resolver awaits coroutines
        """Put the value among the handler's arguments."""
        return super().use(**kwargs)
