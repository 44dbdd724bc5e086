"""The lock between retention and whoever puts a group elsewhere: one of both at a time.

Seeking takes it shared until its commit, before it looks for its place. Deleting takes it in an earlier
statement of its own short transaction, and finds out afterwards what must stay: it sees every seek that was
committed before, and none can come in between. Used by `retention` and `partitions`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

LONGEST_WAIT = 30.0
"""Seconds to wait for a transaction that puts a group elsewhere."""
PAUSE = 0.05


async def undisturbed(attempt: Callable[[], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
    """Try until no group is being put elsewhere: until the answer is not empty.

    Tried, not waited for: whoever waits for the lock alone makes all who want to share it wait behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST_WAIT
    while True:
        answer = await attempt()
        if answer:
            return answer
        if loop.time() > deadline:
            msg = (
                f"For {LONGEST_WAIT} s a transaction has been open that called seek() or set_position(): before it "
                "ends, what its group will need is not known. Commit it or roll it back, and clean again."
            )
            raise TimeoutError(msg)
        await asyncio.sleep(PAUSE)
