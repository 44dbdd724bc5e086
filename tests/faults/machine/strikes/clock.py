"""A child whose clock is wrong: hours ahead or behind, as on a machine without a time server.

The package promises to go by the server's clock. libfaketime shifts what the child's process believes; durations
stay right, as they do on such a machine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.faults.machine.strikes.strike import (
    CHILDREN,
    NATS,
    POOLER,
    PRIMARY,
    Cast,
    NotHere,
    Strike,
    choose,
    linger,
    replace,
    stop,
)
from tests.faults.machine.world import World

LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")
HOURS = (-30.0, -1.0, -0.01, 0.01, 1.0, 30.0)


def library() -> Path:
    """Where libfaketime is."""
    for pattern in LIBRARIES:
        for found in Path("/").glob(pattern.removeprefix("/")):
            return found
    raise NotHere("no libfaketime: apt-get install faketime")


@contextmanager
def shifted_clock(hours: float) -> Iterator[None]:
    """Processes that are started in this block have a clock that is so many hours ahead."""
    values = {
        "LD_PRELOAD": str(library()),
        "FAKETIME": f"{hours * 3600:+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # It would outlive a process that is killed.
        "FAKETIME_DISABLE_SHM": "1",
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class ClockShifted(Strike):
    """One child is exchanged for one with a wrong clock, and that one for a right one after a while."""

    kind = "clock shifted"
    takes = frozenset({CHILDREN})
    # Whatever is started meanwhile would have the wrong clock too.
    shares = frozenset({PRIMARY, POOLER, NATS})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        library()
        child = choose(cast, self.roles, chance)
        hours = chance.choice(HOURS)
        with world.fault(self.kind, f"{child.role} by {hours:+g} h"):
            await stop(world, child)
            try:
                with shifted_clock(hours):
                    child = await replace(cast, child)
                await linger(chance, 2.0, 5.0)
                await stop(world, child)
            finally:
                await replace(cast, child)
