"""Children that are forked from a process that has imported everything: a start costs no second of a core.

Otherwise a child is what `python -m program argument` is: a process of its own, which is killed, frozen and ended
alone, with its own standard streams, this environment, and nothing of this process but that.
"""

import asyncio
import contextlib
import multiprocessing
import os
import runpy
import sys
import warnings
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
IMPORTED = [
    "faststream.nats",
    "faststream.rabbit",
    "faststream_outbox._internal.health.health",
    "tests.faults.inbox_child",
    "tests.faults.log_child",
    "tests.faults.machine.roles.consumer",
    "tests.faults.machine.roles.member",
    "tests.faults.machine.roles.producer",
    "tests.faults.machine.roles.relay",
    "tests.faults.machine.roles.worker",
    "tests.relay.child",
]
"""What children need; none of it starts a thread, opens a file or draws a number when it is imported."""

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(IMPORTED)


class Forked:
    """A child, with as much of `asyncio.subprocess.Process` as tests use."""

    def __init__(self, process: ForkServerProcess, stdin: int, stdout: asyncio.StreamReader) -> None:
        assert process.pid is not None
        self.pid: int = process.pid
        self.stdout = stdout
        self._process = process
        self._stdin = stdin
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    @classmethod
    async def start(cls, program: str, argument: str, *, stderr: int = 2) -> Self:
        """`python -m program argument`; what ends when its standard input does outlives no test."""
        its_stdin, stdin = os.pipe()
        stdout, its_stdout = os.pipe()
        given = (program, argument, dict(os.environ), _Streams(its_stdin, its_stdout, stderr))
        process = CONTEXT.Process(target=_play, args=given, daemon=True)
        try:
            # The first one waits until everything is imported.
            await asyncio.to_thread(process.start)
        finally:
            os.close(its_stdin)
            os.close(its_stdout)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb", buffering=0)
        )
        return cls(process, stdin, reader)

    @property
    def returncode(self) -> int | None:
        """Its exit code, or less than zero the signal that killed it, once it has ended."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait until it has ended, and give its exit code."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        os.close(self._stdin)
        self._ended.set()


class _Streams:
    """Numbers of files, which become those of the standard streams of a child."""

    def __init__(self, *files: int) -> None:
        self._files = files

    def __reduce__(self) -> Any:
        return _received, tuple(map(DupFd, self._files))


def _received(*files: Any) -> list[int]:
    return [file.detach() for file in files]


def _play(program: str, argument: str, environment: Mapping[str, str], streams: list[int]) -> None:
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [program, argument]
    # It was imported under its own name before, by others.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    runpy.run_module(program, run_name="__main__")
