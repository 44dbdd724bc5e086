"""Attempts at the messages of a topic in memory, for one group.

An attempt ends as one of the log's engine does: outcomes, retries, parking, and a batch of which only the guilty
message fails. Used by the test broker, which calls the handler at once or from its loops.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.verdict import failed_together
from faststream_outbox._internal.memory.log import MemoryGroup, UnleasedBatchRun
from faststream_outbox._internal.outcomes.failure import ENDING, Renderer
from faststream_outbox._internal.outcomes.outcome import SETTLED, Dead, Outcome, Release, Retry, Settled

Call = Callable[[Any], Awaitable[Any]]


class MemoryReader:
    """Makes attempts at a group's messages.

    name: the subscriber's, for events.
    strategy: when a failed message comes again.
    """

    def __init__(
        self, group: MemoryGroup, *, name: str, strategy: object, events: Events, renderer: Renderer | None
    ) -> None:
        self.group = group
        self._name = name
        self._strategy = strategy
        self._events = events
        self._renderer = renderer

    async def read(self, delivery: Delivery, call: Call) -> None:
        """One attempt at a message."""
        with self._in_flight([delivery]) as began:
            outcome: Outcome
            try:
                outcome = await call(delivery)
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - a failed attempt, kept with the message
                outcome = SETTLED if isinstance(delivery.decision, Settled) else Retry(error=error)
            self._end(delivery, outcome, began)

    async def read_batch(self, deliveries: Sequence[Delivery], call: Call) -> None:
        """One attempt at several; one by one where all of them failed together."""
        if not deliveries:
            return
        with self._in_flight(deliveries) as began:
            outcomes: Sequence[Outcome]
            try:
                outcomes = await call(deliveries)
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - a failed attempt, kept with each message
                is_settled = all(isinstance(delivery.decision, Settled) for delivery in deliveries)
                outcomes = [SETTLED if is_settled else Retry(error=error)] * len(deliveries)
            alone = failed_together(outcomes)
            for delivery, outcome in zip(deliveries, outcomes, strict=True):
                if not (alone and isinstance(outcome, Retry | Dead)):
                    self._end(delivery, outcome, began)
        if not alone:
            return

        async def call_alone(delivery: Delivery) -> Outcome:
            [outcome] = await call([delivery])
            single: Outcome = outcome
            return single

        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            blocked = {each.uri for each in deliveries if each.position in self.group.waiting}
            if isinstance(outcome, Retry | Dead) and delivery.uri not in blocked:
                delivery.decision = delivery.error = None
                await self.read(delivery, call_alone)

    def _named(self, delivery: Delivery) -> tuple[str, str, int, int]:
        return self.group.topic, self._name, delivery.position, delivery.deliveries_count

    @contextmanager
    def _in_flight(self, deliveries: Sequence[Delivery]) -> Generator[float, None, None]:
        """Keep their slots from everybody else; when they began."""
        began = perf_counter()
        try:
            for delivery in deliveries:
                delivery.batch_run = UnleasedBatchRun()
                self.group.busy.add(delivery.slot)
                self._events.emit(events.Started(*self._named(delivery), len(delivery.payload), group=self.group.name))
            yield began
        finally:
            self.group.busy -= {delivery.slot for delivery in deliveries}

    def _end(self, delivery: Delivery, outcome: Outcome, began: float) -> None:
        """Note what became of a message, and report it."""
        named, duration = self._named(delivery), perf_counter() - began
        match self.group.settle(delivery, outcome, self._strategy, self._renderer):
            case Retry(delay=delay, error=error):
                self._events.emit(events.Retried(*named, duration, delay or 0.0, error, group=self.group.name))
            case Dead(reason=reason, error=error):
                self._events.emit(events.Died(*named, duration, reason, True, error, group=self.group.name))
            case Release():
                pass
            case _:
                self._events.emit(events.Handled(*named, duration, group=self.group.name))
