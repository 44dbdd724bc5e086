"""Processes of the log's fault tests: children that read or sequence, and can end in the middle of a batch."""

import asyncio
import signal

from tests.faults.processes import PATIENCE, Troupe, WorkerProcess


class LogProcess(WorkerProcess):
    """A child that runs `tests.faults.log_child`."""

    program = "tests.faults.log_child"

    async def exit_in_handler(self) -> int:
        """Let it end in the middle of the next batch, and give its exit code."""
        self._process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


LogTroupe = Troupe[LogProcess]
