"""Children are killed, stopped, frozen, exchanged and counted as the strikes say; the rest of them is left alone."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.machine.strikes.clock import ClockShifted, library, shifted_clock
from tests.faults.machine.strikes.processes import Frozen, Grown, Killed, Rolled, Shrunk, Stopped
from tests.faults.machine.strikes.strike import NotHere, NotNow, Strike
from tests.faults.machine.strikes.striking import Tame, Witness, striking
from tests.faults.machine.world import World
from tests.servers.missing import missing
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


class Sleeper:
    """A process that does nothing, and ends by SIGTERM."""

    def __init__(self, process: asyncio.subprocess.Process, role: str) -> None:
        self._process = process
        self.role = role

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @property
    def state(self) -> str:
        """The letter that Linux has for it: S sleeps, T is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    @property
    def environment(self) -> bytes:
        try:
            return Path(f"/proc/{self.pid}/environ").read_bytes()
        except OSError:
            # It has just ended.
            return b""

    @property
    def ended_by(self) -> int | None:
        return self._process.returncode

    async def kill(self) -> None:
        if self.is_alive:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self.is_alive:
            self._process.terminate()
        await self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class Sleepers:
    """A cast of them."""

    def __init__(self) -> None:
        self.children: list[Sleeper] = []

    @property
    def alive(self) -> list[Sleeper]:
        return [child for child in self.children if child.is_alive]

    def of(self, role: str) -> list[Sleeper]:
        return [child for child in self.alive if child.role == role]

    async def start(self, role: str) -> Sleeper:
        child = Sleeper(await asyncio.create_subprocess_exec("sleep", "600"), role)
        self.children.append(child)
        return child

    async def replace(self, child: Sleeper) -> Sleeper:
        await child.kill()
        return await self.start(child.role)


@pytest.fixture(scope="module")
def world() -> World:
    """One without servers: nothing here needs them."""
    world = World.__new__(World)
    world.lease_seconds = 0.1
    world.history = Witness()
    return world


@pytest_asyncio.fixture(loop_scope="module")
async def cast() -> AsyncIterator[Sleepers]:
    cast = Sleepers()
    for role in ("worker", "worker", "other"):
        await cast.start(role)
    yield cast
    for child in cast.children:
        await child.kill()


def worker(strike: type[Strike]) -> Strike:
    return strike(roles=["worker"])


@pytest.mark.parametrize(("strike", "number"), [(Killed, signal.SIGKILL), (Stopped, signal.SIGTERM)])
async def test_one_child_ends_and_another_takes_its_place(
    world: World, cast: Sleepers, strike: type[Strike], number: int
) -> None:
    first, second, other = cast.children
    async with striking(worker(strike), world, cast):
        await eventually(lambda: [first.ended_by, second.ended_by].count(-number) == 1)
    assert len(cast.of("worker")) == 2
    assert other.is_alive


async def test_one_child_stands_still_and_goes_on(world: World, cast: Sleepers) -> None:
    def states() -> str:
        return "".join(sorted(child.state for child in cast.of("worker")))

    async with striking(worker(Frozen), world, cast):
        await eventually(lambda: states() == "ST")
    await eventually(lambda: states() == "SS")


async def test_all_children_of_a_role_are_exchanged(world: World, cast: Sleepers) -> None:
    first, second, other = cast.children
    async with striking(worker(Rolled), world, cast):
        pass
    assert (first.ended_by, second.ended_by, other.is_alive) == (-signal.SIGTERM, -signal.SIGTERM, True)
    assert len(cast.of("worker")) == 2


async def test_more_children_and_as_many_as_before(world: World, cast: Sleepers) -> None:
    async with striking(worker(Grown), world, cast):
        await eventually(lambda: len(cast.of("worker")) == 3)
    assert len(cast.of("worker")) == 2


async def test_fewer_children_and_as_many_as_before(world: World, cast: Sleepers) -> None:
    async with striking(worker(Shrunk), world, cast):
        await eventually(lambda: len(cast.of("worker")) == 1)
    assert len(cast.of("worker")) == 2


async def test_the_last_child_is_not_taken_away(world: World, cast: Sleepers) -> None:
    with pytest.raises(NotNow, match="only one other"):
        await Shrunk(roles=["other"]).strike(world, cast, Tame())


async def test_child_with_a_wrong_clock_for_a_while(world: World, cast: Sleepers) -> None:
    needs_library()

    def shifted() -> int:
        return sum(b"FAKETIME=" in child.environment for child in cast.of("worker"))

    async with striking(worker(ClockShifted), world, cast):
        await eventually(lambda: shifted() == 1)
    assert (shifted(), len(cast.of("worker"))) == (0, 2)


async def test_clock_is_shifted_and_durations_are_not() -> None:
    needs_library()
    code = "import time; print(time.time(), time.monotonic())"
    with shifted_clock(-30.0):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    shown, _ = await child.communicate()
    clock, monotonic = map(float, shown.split())
    assert -31 * 3600 < clock - time.time() < -29 * 3600
    assert abs(monotonic - time.monotonic()) < 3600


def needs_library() -> None:
    try:
        library()
    except NotHere as missing_library:
        missing(str(missing_library))
