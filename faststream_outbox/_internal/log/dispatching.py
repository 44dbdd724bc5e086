"""One pass over a group, and `async for` over its messages, without a broker.

What a pass did is counted once it is written, and failures are kept with it. In a loop of the caller's, a message is
acknowledged when the next one is asked for; the one in flight when the loop is left, by `break`, by an error or by a
kill, comes again. Progress is written a few times a second while messages flow, and before the loop waits or ends. Used
by `Outbox`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from faststream_outbox._internal.log.client import LogClient
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.member import Ended
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.outcomes.outcome import DONE, Dead, Outcome, Release, Retry
from faststream_outbox._internal.service import unbroken

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


_UNHANDLED = Release()


async def deliveries(reader: Reader, client: LogClient, *, undecided: Outcome = _UNHANDLED) -> AsyncIterator[Delivery]:
    """Deliveries of a group, for ever; one that is not decided on ends as `undecided`."""
    member = reader.member
    await client.attach(member)
    is_idle = True
    try:
        while True:
            if member.is_unsettled:
                await reader.join()
            batch = await reader.next_batch(is_idle=is_idle)
            is_idle = False
            if batch is None:
                is_idle = await reader.wait()
                continue
            handing = _Handing(BatchRun(member, reader.settler, batch), undecided)
            in_flight: Delivery | None = None
            try:
                for delivery in batch.deliveries:
                    if not handing.takes(delivery):
                        continue
                    with_care = member.needs_note(delivery)
                    may_run = await handing.note(delivery) if with_care else True
                    if may_run is None:
                        break
                    if may_run:
                        in_flight = delivery
                        if handing.can_be_read(delivery):
                            yield delivery
                        in_flight = None
                        await handing.settle(delivery)
                    if with_care and not handing.is_over:
                        await handing.survive(delivery)
                    if handing.is_over:
                        break
            finally:
                await unbroken(handing.end(in_flight))
    finally:
        await unbroken(_leave(reader, client))


async def _leave(reader: Reader, client: LogClient) -> None:
    try:
        await reader.leave()
    finally:
        await client.detach(reader.member)


class _Handing:
    """One batch on its way through the loop of a caller."""

    def __init__(self, batch_run: BatchRun, undecided: Outcome) -> None:
        self._batch_run = batch_run
        self._undecided = undecided
        self._count = 0
        self.is_over = False

    def takes(self, delivery: Delivery) -> bool:
        """Whether it may be handed out now; if not, it is dealt with."""
        if self._batch_run.may_run(delivery):
            return True
        self._batch_run.reached = delivery.cursor
        self._count += 1
        return False

    def can_be_read(self, delivery: Delivery) -> bool:
        """Whether there is a message to hand out; one that Python cannot read is parked, or no loop would pass it."""
        error = delivery.read_ahead()
        if error is not None:
            delivery.park(error)
        return error is None

    async def note(self, delivery: Delivery) -> bool | None:
        """Note that it is about to be handed out; False if it is over, None if it is lost."""
        may_run = await self._batch_run.noted(delivery)
        if may_run is False:
            self._count += 1
        return may_run

    async def survive(self, delivery: Delivery) -> None:
        """Write at once what became of it."""
        await self._batch_run.survived(delivery)

    async def settle(self, delivery: Delivery) -> None:
        """The caller is done with it."""
        outcome = self._undecided if delivery.decision is None else delivery.decision
        if isinstance(outcome, Release):
            self.is_over = True
            return
        self._batch_run.end(delivery, outcome)
        self._batch_run.reached = delivery.cursor
        self._count += 1
        if outcome is not DONE or self._batch_run.is_time_to_settle():
            await self._batch_run.write()

    async def end(self, in_flight: Delivery | None) -> None:
        """Write how far the caller came; a decision on the delivery in flight counts, although nobody asks for more."""
        if in_flight is not None and in_flight.decision is not None:
            await self.settle(in_flight)
        is_whole = self._count == len(self._batch_run.batch.deliveries)
        await self._batch_run.finish(is_whole=is_whole, release=False)
