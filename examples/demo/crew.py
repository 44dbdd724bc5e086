"""The demo's processes, the shop, its workers and NATS: started, killed, and never left behind."""

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rich.markup import escape

ROOT = Path(__file__).parents[2]
# What a process says when it is ready.
READY = "started successfully", "Application startup complete", "Server is ready"
# Of what it says otherwise, this is shown: problems and dead letters, without colours and tracebacks.
LOUD = re.compile(r"(?:WARNING|ERROR|CRITICAL) .*|Message \d+ of .*")
NATS = "NATS"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Crew:
    """Processes by name; what they have to say is said aloud."""

    def __init__(self, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._environment = environment
        self._say = say
        self._hired: dict[str, asyncio.subprocess.Process] = {}
        self._voices: list[asyncio.Task[None]] = []

    async def open_shop(self, port: int) -> None:
        """Start the HTTP application."""
        await self._start("shop", "uvicorn", "examples.shop.app:app", f"--port={port}", "--no-access-log")

    async def open_nats(self, port: int) -> None:
        """Start a NATS server."""
        await self._start(NATS, "examples.demo.nats", str(port))

    async def hire(self, name: str, program: str = "worker") -> None:
        """Start a process of the shop's, a worker for instance, and wait until it consumes."""
        await self._start(name, "faststream", "run", f"examples.shop.{program}:app")

    async def kill(self, name: str) -> None:
        """End a process with SIGKILL: no goodbye, no cleaning up."""
        process = self._hired.pop(name)
        process.kill()
        await process.wait()
        self._say(f"[red]{name} killed[/] with SIGKILL, with messages in flight")

    async def dismiss(self) -> None:
        """Stop every process and wait until it is gone, NATS after those that use it; a second Ctrl-C kills them."""
        others = [process for name, process in self._hired.items() if name != NATS]
        nats = [process for name, process in self._hired.items() if name == NATS]
        try:
            for processes in (others, nats):
                for process in processes:
                    if process.stdin is not None:
                        process.stdin.close()
                await asyncio.gather(*(process.wait() for process in processes))
            await asyncio.gather(*self._voices)
        except asyncio.CancelledError:
            for process in self._hired.values():
                if process.returncode is None:
                    process.kill()
            raise

    async def _start(self, name: str, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.demo.tether",
            *arguments,
            cwd=ROOT,
            env=os.environ | dict(self._environment) | {"SHOP_WORKER_NAME": name},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Out of reach of Ctrl-C: the end of its standard input stops it gently, whatever ends the demo.
            start_new_session=True,
        )
        self._hired[name] = process
        ready = asyncio.Event()
        last_words: deque[str] = deque(maxlen=20)
        self._voices.append(asyncio.create_task(self._speak(name, process, ready, last_words)))
        await ready.wait()
        if process.returncode is not None:
            words = "\n".join(last_words)
            message = f"{name} ended by itself with the code {process.returncode}:\n{words}"
            raise RuntimeError(message)
        self._say(f"[green]{name} started[/] (process {process.pid})")

    async def _speak(
        self, name: str, process: asyncio.subprocess.Process, ready: asyncio.Event, last_words: deque[str]
    ) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            words = COLOUR.sub("", line.decode(errors="replace").rstrip())
            last_words.append(words)
            if any(sign in words for sign in READY):
                ready.set()
            if (loud := LOUD.search(words)) is not None:
                self._say(f"[dim]{name}: {escape(loud[0])}[/]")
        await process.wait()
        ready.set()


@asynccontextmanager
async def crew_of(environment: Mapping[str, str], say: Callable[[str], None]) -> AsyncGenerator[Crew]:
    """A crew that is gone when the block ends."""
    crew = Crew(environment, say)
    try:
        yield crew
    finally:
        await crew.dismiss()
