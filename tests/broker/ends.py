"""A handler that ends in some way, under every policy, without a database: what the engine hears of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

from faststream import AckPolicy, BaseMiddleware, Context
from faststream.response import PublishCommand
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_outbox_table
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage as TopicMessage
from faststream_outbox._internal.memory.log import MemoryLog
from faststream_outbox._internal.outcomes.calling import limited
from faststream_outbox._internal.outcomes.outcome import Dead, Done, Outcome, Release, Retry, Settled, Undecided
from faststream_outbox.log import make_log_tables
from tests.broker.endings import Panic

__all__ = ["Panic"]

POLICIES = (AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL)
LEASE_SECONDS = 300.0
REACHED: ContextVar[asyncio.Event] = ContextVar("reached")
"""Set when a handler waits for its cancellation."""


def said(outcome: Outcome) -> str:
    """An outcome in a word, and the error that is kept with it."""
    match outcome:
        case Done():
            return "done"
        case Settled():
            return "settled"
        case Release(counts=counts):
            return "given back, counted" if counts else "given back"
        case Undecided(error=error):
            return f"undecided{_of(error)}"
        case Dead(error=error):
            return f"dead{_of(error)}"
        case Retry(delay=delay, error=error, counts=counts):
            after = "" if delay is None else f" after {delay:g}"
            return f"retry{after}{_of(error)}{'' if counts else ', uncounted'}"


def _of(error: BaseException | None) -> str:
    return "" if error is None else f" of {type(error).__name__}"


class Writing:
    """How the transaction of a batch ends."""

    def __init__(self, *, can_commit: bool) -> None:
        self._can_commit = can_commit

    async def begin_within(self, session: Any) -> None: ...

    async def settle_within(self, session: Any, deliveries: Sequence[Delivery]) -> None: ...

    async def commit(self, session: Any) -> None:
        if not self._can_commit:
            raise ConnectionError


class Stopped:
    """Publishers of another broker, which ran when the message came, and does so no longer."""

    is_open = False

    async def opened(self, timeout: float, is_over: Callable[[], bool]) -> bool:
        return True


class Refuses(BaseMiddleware):
    """Lets nothing be published."""

    async def publish_scope(self, call_next: Callable[..., Any], cmd: PublishCommand) -> Any:
        raise ConnectionError


Ending = Callable[[Any], Awaitable[Any]]


async def returns(message: Any) -> None: ...


def raises(error: type[BaseException], *given: Any) -> Ending:
    async def end(message: Any) -> None:
        raise error(*given)

    return end


def by_hand(*ways: str, then: Ending = returns) -> Ending:
    async def end(message: Any) -> Any:
        for way in ways:
            await getattr(message, way)()
        return await then(message)

    return end


def one_by_hand(way: str, then: Ending = returns) -> Ending:
    """One message of a batch of two; the other one is left."""

    async def end(batch: Any) -> Any:
        await getattr(batch.messages[0], way)()
        return await then(batch)

    return end


def cancelled(then: Ending | None = None) -> Ending:
    async def end(message: Any) -> Any:
        REACHED.get().set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if then is None:
                raise
            return await then(message)

    return end


@dataclass(frozen=True)
class Case:
    """One way to end."""

    ending: Ending = returns
    is_stopped: bool = False
    seconds: float | None = None
    can_publish: bool = True
    can_commit: bool = True
    can_forward: bool = True


async def ended(case: Case, *, transactional: bool, count: int = 1) -> tuple[str, ...]:
    """What the engine hears under each policy: of the message, or of each one of a batch."""
    metadata = MetaData()
    broker = OutboxBroker(
        outbox_table=make_outbox_table(metadata),
        log_tables=make_log_tables(metadata, "outbox_log"),
        dlq_table=None,
        logger=None,
    )
    if not case.can_publish:
        broker.add_middleware(Refuses)

    def registered(policy: AckPolicy) -> Any:
        subscriber = broker.subscriber(
            topic=policy.name.lower(),
            group="table",
            ack_policy=policy,
            batch=count > 1,
            transactional=transactional,
            lease_ttl_seconds=LEASE_SECONDS,
        )
        letters = (lambda call: call) if case.can_publish else broker.publisher("letters")

        async def handle(body: Any, message: Annotated[Any, Context()]) -> Any:
            return await case.ending(message)

        letters(subscriber(handle))
        return subscriber

    subscribers = [registered(policy) for policy in POLICIES]
    async with TestOutboxBroker(broker):
        return tuple([await _ended(subscriber, case, count) for subscriber in subscribers])


async def _ended(subscriber: Any, case: Case, count: int) -> str:
    if not case.can_forward:
        subscriber._forwarding = Stopped()
    reached = asyncio.Event()
    REACHED.set(reached)
    seconds = case.seconds
    while True:
        heard = await _heard(subscriber, case, count, reached, seconds)
        if seconds is None or reached.is_set():
            return heard
        # The machine was busy: the time was over before the handler came so far.
        seconds *= 10


async def _heard(subscriber: Any, case: Case, count: int, reached: asyncio.Event, seconds: float | None) -> str:
    rows = MemoryLog().append([TopicMessage("orders", b"1", {"content-type": "application/json"})] * count)
    deliveries = [Delivery(row, "orders") for row in rows]
    for delivery in deliveries:
        delivery.batch_run = Writing(can_commit=case.can_commit)
    call = limited(subscriber.handle if count == 1 else subscriber.handle_batch, seconds)
    task = asyncio.ensure_future(call(deliveries[0] if count == 1 else deliveries))
    if case.is_stopped:
        await reached.wait()
        subscriber.is_stopping = True
        task.cancel()
    try:
        answer = await task
    except BaseException as error:
        kept = ("nothing" if each.decision is None else said(each.decision) for each in deliveries)
        return f"{type(error).__name__}, decided: {', '.join(kept)}"
    return said(answer) if count == 1 else ", ".join(map(said, answer))
