"""What a dispatch did: outcomes counted once they are written, and failures kept. Used by `Outbox`."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from faststream_outbox._internal.log.batch import Ended
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.outcomes.outcome import DONE, Dead, Outcome, Retry

Subscriber = Callable[[OutboxMessage], Awaitable[object]]
"""Handles one message; raising is failing."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What a dispatch did; true if there was anything to do."""

    handled: int = 0
    failures: tuple[tuple[OutboxMessage, BaseException | None], ...] = ()
    passed: int = 0
    """Messages that wait behind another one of their key."""

    def __bool__(self) -> bool:
        return bool(self.handled or self.failures or self.passed)


class Tally:
    """Counts what became of messages."""

    def __init__(self) -> None:
        self._handled = 0
        self._failures: list[tuple[OutboxMessage, BaseException | None]] = []

    def hear(self, ended: Sequence[Ended]) -> None:
        """So much was written."""
        for delivery, outcome, _ in ended:
            if isinstance(outcome, Retry | Dead):
                self._failures.append((delivery.shown, outcome.error))
            else:
                self._handled += 1

    def dispatched(self, passed: int) -> Dispatched:
        """The sum of it."""
        return Dispatched(self._handled, tuple(self._failures), passed)


def plainly(subscriber: Subscriber) -> Callable[[Delivery], Awaitable[Outcome]]:
    """A call of a subscriber that takes the message."""

    async def call(delivery: Delivery) -> Outcome:
        await subscriber(delivery.message)
        return DONE

    return call
