"""Every way for a handler to end, what becomes of its message, and how to ask that of a queue and of a topic."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, StopConsume
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.events.types import Died, Handled, Retried
from faststream_outbox.annotations import OutboxMessage
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


@dataclass(frozen=True)
class Ended:
    """`gone`, `waits`, `dead`, or `undecided`, which is dead for want of a decision."""

    state: str
    delay: float | None = None
    """Rounded to hundreds of seconds: whole ones pass while a machine is busy."""
    attempts: int | None = None
    error: str | None = field(default=None, compare=False)


class Panic(BaseException):
    """What a Rust extension raises."""


ACK, REJECT, NACK, MANUAL = AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
STRATEGY_DELAY, LEASE_SECONDS = 1000.0, 300.0
DONE, DEAD, UNDECIDED = Ended("gone"), Ended("dead"), Ended("undecided")
RETRY, LATER = Ended("waits", STRATEGY_DELAY, attempts=1), Ended("waits", 500, attempts=1)
SNOOZED, SKIPPED = Ended("waits", 500, attempts=0), Ended("waits", LEASE_SECONDS, attempts=0)


def _by_policy(ack: Ended, reject: Ended, nack: Ended, manual: Ended = UNDECIDED) -> dict[AckPolicy, Ended]:
    return {ACK: ack, REJECT: reject, NACK: nack, MANUAL: manual}


TABLE: dict[str, dict[AckPolicy, Ended]] = {
    "returns": _by_policy(DONE, DONE, DONE),
    "exception": _by_policy(DONE, DEAD, RETRY),
    "panic": _by_policy(DONE, DEAD, RETRY),
    "AckMessage": _by_policy(DONE, DONE, DONE),
    "NackMessage": _by_policy(RETRY, RETRY, RETRY),
    "NackMessage(500)": _by_policy(LATER, LATER, LATER),
    "RejectMessage": _by_policy(DEAD, DEAD, DEAD),
    "SkipMessage": _by_policy(SKIPPED, SKIPPED, SKIPPED),
    "StopConsume": _by_policy(DONE, DEAD, RETRY),
    "parser raises": _by_policy(DONE, DEAD, RETRY),
    "on_receive raises": _by_policy(DONE, DEAD, RETRY),
    "message.ack()": _by_policy(DONE, DONE, DONE, DONE),
    "message.nack()": _by_policy(RETRY, RETRY, RETRY, RETRY),
    "message.nack(500)": _by_policy(LATER, LATER, LATER, LATER),
    "message.snooze(500)": _by_policy(SNOOZED, SNOOZED, SNOOZED, SNOOZED),
    "message.reject()": _by_policy(DEAD, DEAD, DEAD, DEAD),
    "acks, then raises": _by_policy(DONE, DONE, DONE, DONE),
    "nacks, then raises": _by_policy(RETRY, RETRY, RETRY, RETRY),
    "rejects, then raises": _by_policy(DEAD, DEAD, DEAD, DEAD),
    "rejects, then acks": _by_policy(DEAD, DEAD, DEAD, DEAD),
    "cancelled": _by_policy(RETRY, RETRY, RETRY, RETRY),
}
RAISED: dict[str, BaseException] = {
    "exception": ValueError(),
    "panic": Panic(),
    "AckMessage": AckMessage(),
    "NackMessage": NackMessage(),
    "NackMessage(500)": NackMessage(delay=500),
    "RejectMessage": RejectMessage(),
    "SkipMessage": SkipMessage(),
    "StopConsume": StopConsume(),
    "cancelled": asyncio.CancelledError(),
}
DECIDED: dict[str, Callable[[Any], Awaitable[None]]] = {
    "message.ack()": lambda message: message.ack(),
    "message.nack()": lambda message: message.nack(),
    "message.nack(500)": lambda message: message.nack(delay=500),
    "message.snooze(500)": lambda message: message.snooze(500),
    "message.reject()": lambda message: message.reject(),
    "acks": lambda message: message.ack(),
    "nacks": lambda message: message.nack(),
    "rejects": lambda message: message.reject(),
}


def ending_in(ending: str) -> Callable[..., Awaitable[None]]:
    """A handler that ends so with 1, and acks 2."""
    first, _, then = ending.partition(", then ")

    async def handle(body: int, message: OutboxMessage) -> None:
        if body == 2:
            await message.ack()
            return
        if first in DECIDED:
            await DECIDED[first](message)
        if then == "acks":
            await message.ack()
        if then == "raises":
            raise ValueError
        if ending in RAISED:
            raise RAISED[ending]

    return handle


async def failing_parser(raw: Any) -> Any:
    """What a subscriber needs whose parser raises."""
    raise ValueError


class Endings(ABC):
    """Subscribers of one engine, and what became of their messages."""

    undecided = UNDECIDED

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @abstractmethod
    def subscriber(self, name: str, **options: Any) -> Callable[..., Any]:
        """Register a subscriber of the queue or topic."""

    @abstractmethod
    async def publish(self, name: str, *, alone: bool) -> int:
        """Publish a message, 1, and unless it is to be `alone` others that tell more of its end; its number."""

    async def of(self, name: str, number: int) -> Ended:
        """What became of the message when its first attempt had ended."""
        heard = self.stage.witness

        def its_ending() -> Any:
            return next((event for event in heard.of(Handled, Retried, Died) if event.id == number), None)

        event = await eventually(its_ending, message=f"{name}: the end of {number}")
        assert event.queue == name
        return await self._read(name, number, event)

    @abstractmethod
    async def _read(self, name: str, number: int, event: Any) -> Ended: ...


class QueueEndings(Endings):
    """Undecided messages are dead here, to be told from others that are tried again."""

    def subscriber(self, name: str, **options: Any) -> Callable[..., Any]:
        return self.stage.broker.subscriber(name, on_undecided="dead", **options)

    async def publish(self, name: str, *, alone: bool) -> int:
        async with AsyncSession(self.stage.engine) as session, session.begin():
            number = await self.stage.broker.publish(1, name, session=session)
        assert number is not None
        return number

    async def _read(self, name: str, number: int, event: Any) -> Ended:
        rows = await self.stage.sql(
            f"select *, next_attempt_at - now() as ahead from {self.stage.table.name} where id = {number}"
        )
        letters = await self.stage.sql(f"select * from {self.stage.dlq_table.name} where original_id = {number}")
        assert len(rows) + len(letters) <= 1
        for row in rows:
            assert row["acquired_token"] is None
            # What counts as no attempt counts as no delivery either.
            assert row["deliveries_count"] == row["attempts_count"]
            return Ended("waits", round(row["ahead"].total_seconds(), -2), row["attempts_count"])
        for letter in letters:
            return Ended("undecided" if letter["failure_reason"] == "undecided" else "dead", error=letter["error_type"])
        return Ended("gone")


class TopicEndings(Endings):
    """A second message of the key comes behind: it waits where the first one does."""

    # Nobody else can say what becomes of it: its key would go on without it.
    undecided = RETRY

    def subscriber(self, name: str, **options: Any) -> Callable[..., Any]:
        return self.stage.broker.subscriber(topic=name, group="billing", **options)

    async def publish(self, name: str, *, alone: bool) -> int:
        bodies = [1] if alone else [1, 2]
        self._waiting = ["retry", "deferred"][: len(bodies)]
        return (await self.stage.publish(*bodies, topic=name, key="order-1"))[0]

    async def _read(self, name: str, number: int, event: Any) -> Ended:
        match event:
            case Handled():
                await self.stage.caught_up(topic=name)
                return Ended("gone")
            case Retried():
                waiting, *_ = await self.stage.has_deferred(*self._waiting, topic=name)
                assert waiting.position == number
                assert waiting.due is not None
                ahead = (waiting.due - waiting.updated_at).total_seconds()
                return Ended("waits", round(ahead, -2), waiting.attempts, waiting.error_type)
            case _:
                parked = await self.stage.deferred(topic=name)
                assert (parked[0].position, parked[0].state) == (number, "parked")
                return Ended("dead", error=parked[0].error_type)
