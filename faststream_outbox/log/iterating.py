"""Reading a group message by message, with `async for`.

What was handled before the next message is asked for is acknowledged; the message in hand when the loop
is left, by `break`, by an error or by a kill, comes again. Progress is written a few times a second while
messages flow, and before the iterator waits or ends. Used by `Outbox.__aiter__` and `Outbox.deliveries`.
"""

import asyncio
from collections.abc import AsyncIterator

from faststream_outbox.log.care import noted, survived
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.handling import Handling
from faststream_outbox.log.reader import Reader
from faststream_outbox.outcomes.outcome import DONE, Outcome, Release
from faststream_outbox.service import unbroken

_UNHANDLED = Release()


async def deliveries(reader: Reader, *, undecided: Outcome = _UNHANDLED) -> AsyncIterator[Delivery]:
    """Deliveries of a group, for ever; one that is not decided on ends as `undecided`."""
    client = reader.client
    await client.attach(reader)
    try:
        while True:
            if reader.is_unsettled:
                await reader.join()
            batch = await reader.next_batch(is_idle=True)
            if batch is None:
                await reader.write_progress()
                await _pause(reader)
                continue
            handing = _Handing(Handling(reader, batch), undecided)
            in_hand: Delivery | None = None
            try:
                for delivery in batch.deliveries:
                    if not handing.takes(delivery):
                        continue
                    with_care = delivery.slot in reader.holding.care
                    may_run = await handing.note(delivery) if with_care else True
                    if may_run is None:
                        break
                    if may_run:
                        in_hand = delivery
                        if handing.can_be_read(delivery):
                            yield delivery
                        in_hand = None
                        await handing.settle(delivery)
                    if with_care and not handing.is_over:
                        await handing.survive(delivery)
                    if handing.is_over:
                        break
            finally:
                await unbroken(handing.end(in_hand))
    finally:
        await unbroken(_leave(reader))


async def _pause(reader: Reader) -> None:
    due = reader.blocked.next_due()
    pause = reader.options.poll_interval
    if due is not None:
        pause = max(0.001, min(pause, due - asyncio.get_running_loop().time()))
    try:
        async with asyncio.timeout(pause):
            await reader.wake.wait()
        reader.wake.clear()
    except TimeoutError:
        pass


async def _leave(reader: Reader) -> None:
    try:
        await reader.leave()
    finally:
        await reader.client.detach(reader)


class _Handing:
    """One batch on its way through the loop of a caller."""

    def __init__(self, handling: Handling, undecided: Outcome) -> None:
        self._handling = handling
        self._undecided = undecided
        self._count = 0
        self.is_over = False

    def takes(self, delivery: Delivery) -> bool:
        """Whether it may be handed out now; if not, it is dealt with."""
        if self._handling.may_run(delivery):
            return True
        self._handling.reached = delivery.cursor
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
        may_run = await noted(self._handling, delivery)
        if may_run is False:
            self._count += 1
        return may_run

    async def survive(self, delivery: Delivery) -> None:
        """Write at once what became of it."""
        await survived(self._handling, delivery)

    async def settle(self, delivery: Delivery) -> None:
        """The caller is done with it."""
        outcome = self._undecided if delivery.decision is None else delivery.decision
        if isinstance(outcome, Release):
            self.is_over = True
            return
        self._handling.end(delivery, outcome)
        self._handling.reached = delivery.cursor
        self._count += 1
        if outcome is not DONE or self._handling.is_time_to_settle():
            await self._handling.write()

    async def end(self, in_hand: Delivery | None) -> None:
        """Write how far the caller came; a decision on the delivery in hand counts, although nobody asks for more."""
        if in_hand is not None and in_hand.decision is not None:
            await self.settle(in_hand)
        is_whole = self._count == len(self._handling.batch.deliveries)
        await self._handling.finish(is_whole=is_whole, release=False)
