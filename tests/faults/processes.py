"""Worker processes of a test: started, waited for, killed, and all gone at its end."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, Self, TypeVar

from tests.faults.child import READY
from tests.faults.forked import Forked

PATIENCE = 30.0


class AnyPart(Protocol):
    """What a child is told to do."""

    def to_json(self) -> str: ...


class WorkerProcess:
    """A child that runs `tests.faults.child`."""

    program = "tests.faults.child"
    patience = PATIENCE

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        self._process = process

    @classmethod
    async def start(cls, part: AnyPart) -> Self:
        """Start it and wait until it says that it works."""
        child = cls(await Forked.start(cls.program, part.to_json()))
        try:
            await child.reaches(READY)
        except BaseException:
            await child.kill()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def reaches(self, point: str) -> None:
        """Wait until the child says that it is there."""
        assert self._process.stdout is not None
        async with asyncio.timeout(self.patience):
            while line := await self._process.stdout.readline():
                if line.decode().strip() == point:
                    return
        raise AssertionError(f"the child ended with {await self._process.wait()} before it reached {point!r}")

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.is_alive:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    def freeze(self) -> None:
        """Stop it as a debugger or a suspended machine would: it runs no more, and its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Ask it to stop, and give its exit code."""
        if self.is_alive:
            self._process.send_signal(signal.SIGTERM)
        return await self.ends(self.patience)

    async def ends(self, patience: float | None = PATIENCE) -> int:
        """Wait until it is gone, and give its exit code."""
        async with asyncio.timeout(patience):
            return await self._process.wait()


class LogProcess(WorkerProcess):
    """A child that runs `tests.faults.log_child`."""

    program = "tests.faults.log_child"

    async def exit_in_handler(self) -> int:
        """Let it end in the middle of the next batch, and give its exit code."""
        self._process.send_signal(signal.SIGUSR1)
        return await self.ends()


class RelayProcess(WorkerProcess):
    """A child that runs `tests.relay.child`."""

    program = "tests.relay.child"


class ConsumerProcess(WorkerProcess):
    """A child that runs `tests.faults.inbox_child`."""

    program = "tests.faults.inbox_child"


P = TypeVar("P", bound=WorkerProcess)


class Troupe(Generic[P]):
    """The children of one test."""

    def __init__(self, kind: type[P]) -> None:
        self._kind = kind
        self.children: list[P] = []

    async def start(self, *parts: AnyPart) -> list[P]:
        """Start children, all at a time."""
        started = await asyncio.gather(*(self._kind.start(part) for part in parts))
        self.children += started
        return started

    @property
    def alive(self) -> list[P]:
        return [child for child in self.children if child.is_alive]


LogTroupe = Troupe[LogProcess]


@asynccontextmanager
async def troupe(kind: type[P]) -> AsyncIterator[Troupe[P]]:
    """Children that do not outlive the block."""
    children = Troupe(kind)
    try:
        yield children
    finally:
        await asyncio.gather(*(child.kill() for child in children.alive))
