"""The clock that leases are judged by: it goes on while the machine sleeps, as the server's does.

An event loop's clock stands still meanwhile, on Linux and on macOS; a message that waited in memory through
a suspend would be begun although somebody else has it. It never goes back, and means nothing to other processes.
"""

import sys
import time


def _of_this_machine() -> int | None:
    if sys.platform == "darwin":
        # There, unlike `time.monotonic`, this one counts sleep too.
        return time.CLOCK_MONOTONIC
    return getattr(time, "CLOCK_BOOTTIME", None)


_CLOCK = _of_this_machine()


def now() -> float:
    """Seconds since some moment."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
