"""Processes of the log's fault tests: started, waited for, killed, and all gone at the end of a test."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.child import READY
from tests.faults.log_child import LogPart
from tests.faults.processes import PATIENCE, ROOT, WorkerProcess


class LogProcess(WorkerProcess):
    """A child that runs `tests.faults.log_child`."""

    @classmethod
    async def launch(cls, part: LogPart) -> "LogProcess":
        """Start it and wait until it is about to read or sequence."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.faults.log_child",
            part.to_json(),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = cls(process)
        try:
            await child.reaches(READY)
        except BaseException:
            await child.kill()
            raise
        return child

    async def exit_in_handler(self) -> int:
        """Let it end in the middle of the next batch, and give its exit code."""
        self._process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


class LogTroupe:
    """The children of one test."""

    def __init__(self) -> None:
        self.children: list[LogProcess] = []

    async def launch(self, *parts: LogPart) -> list[LogProcess]:
        """Start children, all at a time."""
        started = await asyncio.gather(*(LogProcess.launch(part) for part in parts))
        self.children += started
        return started

    @property
    def alive(self) -> list[LogProcess]:
        return [child for child in self.children if child.is_alive]


@asynccontextmanager
async def log_troupe() -> AsyncIterator[LogTroupe]:
    """Children that do not outlive the block."""
    children = LogTroupe()
    try:
        yield children
    finally:
        await asyncio.gather(*(child.kill() for child in children.alive))
