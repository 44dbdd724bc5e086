"""Reading topics in memory: attempts at a group's messages, and the loops that make them where loops run.

An attempt ends as one of the log's engine does: outcomes, retries, parking, and a batch of which only the guilty
message fails. The loops hand each subscriber as many messages at a time as it has workers, never two of one slot.
Used by the test broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from faststream_outbox.broker.memory_log import MemoryGroup, UnleasedHandling
from faststream_outbox.events import table as told
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.handling import failed_together
from faststream_outbox.log.options import Start
from faststream_outbox.outcomes.failure import ENDING
from faststream_outbox.outcomes.limited import limited
from faststream_outbox.outcomes.outcome import SETTLED, Dead, FinalOutcome, Outcome, Release, Retry, Settled

if TYPE_CHECKING:
    from faststream_outbox.broker.broker import OutboxBroker
    from faststream_outbox.broker.fake_client import FakeOutboxClient
    from faststream_outbox.broker.subscriber import OutboxSubscriber

Call = Callable[[Any], Awaitable[Any]]

LOOK_SECONDS = 0.05
"""How often subscribers are looked for that were started meanwhile."""
PATIENCE_SECONDS = 1.0


async def read(
    client: "FakeOutboxClient", subscriber: "OutboxSubscriber", group: MemoryGroup, delivery: Delivery, call: Call
) -> None:
    """One attempt at a message."""
    async with _Hands(client, subscriber, group, [delivery]) as hands:
        outcome: Outcome
        try:
            outcome = await call(delivery)
        except ENDING:
            raise
        except BaseException as error:  # noqa: BLE001 - a failed attempt, kept with the message
            outcome = SETTLED if isinstance(delivery.decision, Settled) else Retry(error=error)
        hands.end(delivery, outcome)


async def read_batch(
    client: "FakeOutboxClient",
    subscriber: "OutboxSubscriber",
    group: MemoryGroup,
    deliveries: Sequence[Delivery],
    call: Call,
) -> None:
    """One attempt at several; one by one where all of them failed together."""
    if not deliveries:
        return
    async with _Hands(client, subscriber, group, deliveries) as hands:
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
                hands.end(delivery, outcome)
    if not alone:
        return

    async def call_alone(delivery: Delivery) -> Outcome:
        outcome: Outcome = (await call([delivery]))[0]
        return outcome

    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        blocked = {each.uri for each in deliveries if each.position in group.waiting}
        if isinstance(outcome, Retry | Dead) and delivery.uri not in blocked:
            delivery.decision = delivery.error = None
            await read(client, subscriber, group, delivery, call_alone)


def subscribers(brokers: "Iterable[OutboxBroker]") -> "list[tuple[FakeOutboxClient, OutboxSubscriber]]":
    """The subscribers under test, each with the client of its broker."""
    return [
        (cast("FakeOutboxClient", broker.client), cast("OutboxSubscriber", subscriber))
        for broker in brokers
        for subscriber in broker.subscribers
    ]


def start_of(subscriber: "OutboxSubscriber") -> Start:
    """Where its group begins that has never read."""
    return subscriber._usecase.start


class _Hands:
    """Messages in hand: their slots are nobody else's meanwhile."""

    def __init__(
        self,
        client: "FakeOutboxClient",
        subscriber: "OutboxSubscriber",
        group: MemoryGroup,
        deliveries: Sequence[Delivery],
    ) -> None:
        self._events = client.events
        self._renderer = client.renderer
        self._subscriber = subscriber
        self._group = group
        self._deliveries = deliveries
        self._began = perf_counter()

    def _named(self, delivery: Delivery) -> tuple[str, str, int, int]:
        name = self._subscriber.specification.call_name
        return self._group.topic, name, delivery.position, delivery.deliveries_count

    async def __aenter__(self) -> "_Hands":
        for delivery in self._deliveries:
            delivery.handling = UnleasedHandling()
            self._group.busy.add(delivery.slot)
            self._events.emit(told.Started(*self._named(delivery), len(delivery.payload)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._group.busy -= {delivery.slot for delivery in self._deliveries}

    def end(self, delivery: Delivery, outcome: Outcome) -> None:
        """Note what became of a message, and tell of it."""
        named, duration = self._named(delivery), perf_counter() - self._began
        final: FinalOutcome = self._group.settle(
            delivery, outcome, self._subscriber.options.retry_strategy, self._renderer
        )
        match final:
            case Retry(delay=delay, error=error):
                self._events.emit(told.Retried(*named, duration, delay or 0.0, error))
            case Dead(reason=reason, error=error):
                self._events.emit(told.Died(*named, duration, reason, True, error))
            case Release():
                pass
            case _:
                self._events.emit(told.Handled(*named, duration))


class TopicLoops:
    """Hands messages of topics to subscribers that run, until it is stopped."""

    def __init__(self, brokers: "Sequence[OutboxBroker]") -> None:
        self._brokers = brokers
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reading: dict[asyncio.Task[None], tuple[OutboxSubscriber, str]] = {}

    def wake(self) -> None:
        """Something was published, or time has passed."""
        self._wake.set()

    def start(self) -> None:
        """Begin, unless already running."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Begin nothing more, and let what runs finish for a moment."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if self._reading:
            _, late = await asyncio.wait([*self._reading], timeout=PATIENCE_SECONDS)
            for reading in late:
                reading.cancel()
            if late:
                await asyncio.wait(late)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause = self._begin()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _begin(self) -> float:
        """Begin whatever may begin; seconds until the next look."""
        pause = LOOK_SECONDS
        for client, subscriber in subscribers(self._brokers):
            if subscriber.group is None or not subscriber.running:
                continue
            for topic in subscriber.queues:
                group = client.log.group(subscriber.group, topic, start_of(subscriber))
                self._hand_out(client, subscriber, group)
                pause = min(pause, max(0.0, group.next_due() or pause))
        return pause

    def _hand_out(self, client: "FakeOutboxClient", subscriber: "OutboxSubscriber", group: MemoryGroup) -> None:
        options = subscriber.options
        place = (subscriber, group.topic)
        call = limited(subscriber.handle_batch if options.batch else subscriber.handle, options.handler_timeout)
        while [*self._reading.values()].count(place) < options.max_workers:
            ready = group.ready(hold=options.on_dead == "block")
            found = [each for each, _ in zip(ready, range(options.most_per_call if options.batch else 1), strict=False)]
            if not found:
                return
            if options.batch:
                work = read_batch(client, subscriber, group, found, call)
            else:
                work = read(client, subscriber, group, found[0], call)
            # Not when the task has begun: the next one must not get the same.
            group.busy |= {delivery.slot for delivery in found}
            task = asyncio.get_running_loop().create_task(work)
            self._reading[task] = place
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._reading.pop(task, None)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
