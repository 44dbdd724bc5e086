"""What became of a message, asked in the same words of a queue and of a topic."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.events.types import Died, Handled, Retried
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


class Endings(ABC):
    """Subscribers of one engine, and what became of their messages."""

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
