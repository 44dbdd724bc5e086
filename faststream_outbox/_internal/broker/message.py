"""Messages as handlers see them, what is decided about them, and what stands in FastStream's context.

`OutboxMessage` and `OutboxBatchMessage` are made by the parsers of whatever an engine hands over: what is odd about a
row must not keep it from being settled. `Deciding` turns the end of a handler into decisions on the claims; nothing
else in the broker does. A decision is not yet written when `ack()` returns: the engine writes it, with many others,
after the handler. Called by the subscriber, its middleware and FastStream; `faststream_outbox.annotations` makes
shortcuts of `Context` that applications use.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from faststream import AckPolicy
from faststream.context import Context as PlainContext
from faststream.exceptions import HandlerException, SkipMessage
from faststream.message import StreamMessage, decode_message
from faststream.types import DecodedMessage

from faststream_outbox._internal.broker._faststream import json_loads
from faststream_outbox._internal.broker.warn import warn_about_late_decision
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.outcomes.outcome import (
    DONE,
    RELEASE,
    SETTLED,
    Dead,
    Done,
    Outcome,
    Release,
    Retry,
    Undecided,
)
from faststream_outbox._internal.queue.claim import Claim

REPLY_TO = "reply_to"
CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"

Received = Claim | Delivery
"""What the engines hand over: a claimed message of a queue, or a delivered one of a topic."""
_RECEIVED = (Claim, Delivery)
NOT_BEGUN_SECONDS = 1.0
"""Until a message comes again for which there was no transaction."""


def claims_of(raw: object) -> list[Received]:
    """The claims or deliveries behind a raw message: one, or a batch of them."""
    if isinstance(raw, _RECEIVED):
        return [raw]
    return [claim for claim in raw if isinstance(claim, _RECEIVED)] if isinstance(raw, (list, tuple)) else []


class Deciding:
    """What becomes of the messages of one call of a handler, step by step in the order in which they may come.

    The first decision counts, unless what it stands on is taken back: a response could not be published, a transaction
    was rolled back or did not commit, the broker to forward to has stopped. Nothing is kept here: what was decided, and
    why, stands on the claims, which the engine settles by `outcomes`.
    """

    __slots__ = ("_is_manual", "claims")

    def __init__(self, raw: object, *, is_manual: bool) -> None:
        self.claims: list[Received] = claims_of(raw)
        self._is_manual = is_manual

    @property
    def is_open(self) -> bool:
        """Whether nothing is decided, although it is not the handler alone who decides."""
        return not self._is_manual and all(claim.decision is None for claim in self.claims)

    @property
    def is_finished(self) -> bool:
        """Whether all are done, by hand or because the handler ended: under MANUAL only what it has said counts."""
        return all(
            isinstance(claim.decision, Done) or (claim.decision is None and not self._is_manual)
            for claim in self.claims
        )

    @property
    def is_committed(self) -> bool:
        """Whether they are settled, with the transaction of their handler."""
        return all(claim.decision is SETTLED for claim in self.claims)

    @staticmethod
    def by_hand(claims: Iterable[Received], outcome: Callable[[Received], Outcome], what: str) -> None:
        """The handler, a middleware or FastStream's policy decides, under every policy: the first of them."""
        for claim in claims:
            if isinstance(claim.decision, Undecided):
                warn_about_late_decision(what)
            claim.decide(outcome(claim))

    def cut_off(self, outcome: Release | Retry) -> bool:
        """The handler was stopped or overdue, and ended otherwise; whether any was undecided then."""
        is_any = any(claim.decision is None for claim in self.claims)
        for claim in self.claims:
            claim.decide(outcome)
        return is_any

    def instructed(self, raised: HandlerException, lease_seconds: float) -> None:
        """Heed what FastStream leaves to the broker: nobody else says what becomes of these messages."""
        for claim in self.claims:
            if self._is_manual:
                claim.error = raised
            elif isinstance(raised, SkipMessage):
                # As a message comes again that nobody has acknowledged.
                claim.decide(Retry(lease_seconds, counts=False))

    def not_begun(self, error: BaseException) -> None:
        """There was no transaction for the handler, so it has not begun: that uses up no attempt."""
        for claim in self.claims:
            claim.error = error
            claim.decide(Retry(NOT_BEGUN_SECONDS, error, counts=False))

    def failed(self, error: BaseException, *, can_forward: bool) -> None:
        """Keep the error for whoever decides; give back what failed because it cannot be forwarded."""
        for claim in self.claims:
            claim.error = error
            if not can_forward and (claim.decision is None or isinstance(claim.decision, Retry)):
                claim.decision = RELEASE

    def unpublished(self, error: Exception) -> None:
        """Let those come again that were acknowledged, because what their handler returned could not be published."""
        for claim in self.claims:
            if isinstance(claim.decision, Done):
                claim.decision = Retry(error=error)

    def rolled_back(self, *, is_done: bool, policy: AckPolicy) -> None:
        """The writes of the handler were taken back, because not all of its messages are finished."""
        if is_done and len(self.claims) > 1:
            # Their writes went with those of one that was not finished.
            for claim in self.claims:
                if isinstance(claim.decision, Done) or (claim.decision is None and not self._is_manual):
                    claim.decision = Retry(0.0, counts=False)
        elif not is_done and policy is not AckPolicy.ACK:
            # They were acknowledged before an error.
            for claim in self.claims:
                if isinstance(claim.decision, Done):
                    claim.decision = Retry(error=claim.error)

    def committed(self) -> None:
        """The handler's transaction has committed, and they are settled with it."""
        for claim in self.claims:
            claim.decision = SETTLED

    def not_committed(self, error: BaseException) -> None:
        """Whatever was decided did not come about: a failed attempt."""
        for claim in self.claims:
            claim.error = error
            claim.decision = Retry(error=error)

    @staticmethod
    def outcomes(claims: Iterable[Received]) -> list[Outcome]:
        """What was decided; that nothing was is kept, so that a decision that comes later is seen."""
        decided: list[Outcome] = []
        for claim in claims:
            decision = claim.decision
            if decision is None:
                decision = claim.decision = Undecided(claim.error)
            decided.append(decision)
        return decided


def _done(_: Received) -> Outcome:
    return DONE


class OutboxMessage(StreamMessage[Received]):
    """One message."""

    async def ack(self) -> None:
        """Done: it leaves the queue, or is behind the group."""
        Deciding.by_hand((self.raw_message,), _done, "ack()")
        await super().ack()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed: try again after `delay` seconds, or as the retry strategy says."""
        Deciding.by_hand((self.raw_message,), lambda claim: Retry(delay, claim.error, counts), "nack()")
        await super().nack()

    async def snooze(self, delay: float) -> None:
        """Not now: come again after `delay` seconds; uses up neither an attempt nor a delivery."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good: a dead letter, or deleted where there is no table for those; parked in a topic."""
        Deciding.by_hand((self.raw_message,), lambda claim: Dead(error=claim.error), "reject()")
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

    async def ack(self) -> None:
        """Done with all that are left."""
        Deciding.by_hand(self.raw_message, _done, "ack()")
        await super().ack()
        self._commit()

    async def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed with all that are left."""
        Deciding.by_hand(self.raw_message, lambda claim: Retry(delay, claim.error, counts), "nack()")
        await super().nack()
        self._commit()

    async def snooze(self, delay: float) -> None:
        """Not now, for all that are left."""
        await self.nack(delay, counts=False)

    async def reject(self) -> None:
        """Failed for good with all that are left."""
        Deciding.by_hand(self.raw_message, lambda claim: Dead(error=claim.error), "reject()")
        await super().reject()
        self._commit()

    def _commit(self) -> None:
        for message in self.__dict__.get("messages", ()):
            message.committed = message.committed or self.committed


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
