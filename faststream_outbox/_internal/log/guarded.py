"""Running messages under the crash guard: each is noted before its call, and written at once after it.

A suspect, which was noted when an owner of its slots died, runs while no other suspect of the process does: whoever ran
beside the guilty one is not blamed again. After `crash_limit` deaths in a row it is parked. Used by `executor`,
`transactional` and `iterating`.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.outcomes.outcome import CRASH_LOOP, Dead
from faststream_outbox.errors import CrashLoop

if TYPE_CHECKING:
    from faststream_outbox._internal.log.executor import BatchRun


async def guarded(batch_run: "BatchRun", delivery: Delivery, run: Callable[[], Awaitable[bool]]) -> bool:
    """Run one message under a note of it, or park it; False if it was not handled and comes again as it is."""
    reader = batch_run.reader
    is_suspect = delivery.position in reader.leases.crash_guard.suspects
    async with reader.client.suspicion() if is_suspect else nullcontext():
        may_run = await noted(batch_run, delivery)
        if may_run is None or (may_run and not await run()):
            return False
        await survived(batch_run, delivery)
        return True


async def noted(batch_run: "BatchRun", delivery: Delivery) -> bool | None:
    """Note that a message is about to run; False if it is over, because owners died with it, None if it is lost."""
    reader = batch_run.reader
    crashes = await reader.note(delivery.slot, delivery.position)
    if crashes is None or crashes < reader.options.crash_limit:
        return None if crashes is None else True
    batch_run.end(delivery, Dead(CRASH_LOOP, CrashLoop(crash_message(crashes))))
    return False


async def survived(batch_run: "BatchRun", delivery: Delivery) -> None:
    """Write what became of a message at once: if the next one ends the process, this one must not come again."""
    reader = batch_run.reader
    batch_run.reached = delivery.cursor
    await batch_run.write()
    if batch_run.batch.is_deferred:
        # No cursor was moved, which would have taken the note away.
        await reader.note(delivery.slot, None)
    reader.leases.crash_guard.had(delivery.slot, delivery.position)


def crash_message(crashes: int) -> str:
    """What an operator reads of a parked message."""
    return (
        f"crash_loop: {crashes} processes in a row died while this message ran. "
        "Repair the handler, then let it run again with Outbox.parked.retry(…), or end it with skip(…)."
    )
