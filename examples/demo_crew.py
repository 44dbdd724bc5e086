"""The demo's worker processes: started, killed, and never left behind."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rich.markup import escape

ROOT = Path(__file__).parents[1]


class Crew:
    """Worker processes by name; what they log is said aloud."""

    def __init__(self, dsn: str, say: Callable[[str], None]) -> None:
        self._dsn = dsn
        self._say = say
        self._hired: dict[str, asyncio.subprocess.Process] = {}
        self._voices: list[asyncio.Task[None]] = []

    async def hire(self, name: str) -> None:
        """Start a worker process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.demo_worker",
            name,
            self._dsn,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Out of reach of Ctrl-C: the end of its standard input stops a worker gently, whatever ends the demo.
            start_new_session=True,
        )
        self._hired[name] = process
        self._voices.append(asyncio.create_task(self._speak(name, process)))
        self._say(f"[green]{name} started[/] (process {process.pid})")

    async def kill(self, name: str) -> None:
        """End a worker process with SIGKILL: no goodbye, no cleaning up."""
        process = self._hired.pop(name)
        process.kill()
        await process.wait()
        self._say(f"[red]{name} killed[/] with SIGKILL, with messages in hand")

    async def dismiss(self) -> None:
        """Stop every worker process and wait until it is gone; a second Ctrl-C kills them."""
        for process in self._hired.values():
            if process.stdin is not None:
                process.stdin.close()
        try:
            for process in self._hired.values():
                await process.wait()
            await asyncio.gather(*self._voices)
        except asyncio.CancelledError:
            for process in self._hired.values():
                if process.returncode is None:
                    process.kill()
            raise

    async def _speak(self, name: str, process: asyncio.subprocess.Process) -> None:
        if process.stdout is not None:
            async for line in process.stdout:
                self._say(f"[dim]{name}: {escape(line.decode().rstrip())}[/]")


@asynccontextmanager
async def crew_of(dsn: str, say: Callable[[str], None]) -> AsyncGenerator[Crew]:
    """A crew that is gone when the block ends."""
    crew = Crew(dsn, say)
    try:
        yield crew
    finally:
        await crew.dismiss()
