"""Care: after an owner of slots has died, their messages run one by one, and each is noted before its call.

Whoever takes slots over learns that their last owner did not give them back. What that one had in hand is not known,
so as many messages as it may have read run with a note of each; on the happy path nothing is noted. A message that
was noted when an owner died is a suspect, and runs while no other suspect of the process does: whoever ran beside the
guilty one is not blamed again. After `crash_limit` deaths in a row it is parked. Used by `handling`.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from faststream_outbox.errors import CrashLoop
from faststream_outbox.outcomes.outcome import CRASH_LOOP, Dead

if TYPE_CHECKING:
    from faststream_outbox.log.delivery import Delivery
    from faststream_outbox.log.handling import Handling


class Care:
    """The slots whose messages run with a note, and the suspects among those."""

    def __init__(self) -> None:
        self._left: dict[int, list[int]] = {}
        self.suspects: dict[int, int] = {}
        """Messages by position, and how often an owner has died with each."""

    def __contains__(self, slot: int) -> bool:
        return slot in self._left

    def need(self, lo: int, hi: int, messages: int) -> None:
        """Take care of the next so many messages of these slots."""
        left = [messages]
        self._left.update(dict.fromkeys(range(lo, hi + 1), left))

    def had(self, slot: int, position: int) -> None:
        """A message of this slot is dealt with, and everybody is alive."""
        self.suspects.pop(position, None)
        left = self._left.get(slot)
        if left is not None:
            left[0] -= 1
            if left[0] <= 0:
                self._left = {each: others for each, others in self._left.items() if others is not left}


async def carefully(handling: "Handling", delivery: "Delivery", run: Callable[[], Awaitable[bool]]) -> bool:
    """Run one message under a note of it, or park it; False if it was not handled and comes again as it is."""
    reader = handling.reader
    is_suspect = delivery.position in reader.holding.care.suspects
    async with reader.client.suspicion() if is_suspect else nullcontext():
        may_run = await noted(handling, delivery)
        if may_run is None or (may_run and not await run()):
            return False
        await survived(handling, delivery)
        return True


async def noted(handling: "Handling", delivery: "Delivery") -> bool | None:
    """Note that a message is about to run; False if it is over, because owners died with it, None if it is lost."""
    reader = handling.reader
    crashes = await reader.note(delivery.slot, delivery.position)
    if crashes is None or crashes < reader.options.crash_limit:
        return None if crashes is None else True
    handling.end(delivery, Dead(CRASH_LOOP, CrashLoop(crash_message(crashes))))
    return False


async def survived(handling: "Handling", delivery: "Delivery") -> None:
    """Write what became of a message at once: if the next one ends the process, this one must not come again."""
    reader = handling.reader
    handling.reached = delivery.cursor
    await handling.write()
    if handling.batch.is_aside:
        # No cursor was moved, which would have taken the note away.
        await reader.note(delivery.slot, None)
    reader.holding.care.had(delivery.slot, delivery.position)


def crash_message(crashes: int) -> str:
    """What an operator reads of a parked message."""
    return (
        f"crash_loop: {crashes} processes in a row died while this message ran. "
        "Mend the handler, then let it run again with Outbox.parked.retry(…), or end it with skip(…)."
    )
