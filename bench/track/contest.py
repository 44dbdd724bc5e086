"""A contestant: what a queue must be able to do to be measured, and how it is asked.

Each queue runs in a process and a virtual environment of its own, as a script of `bench/peers` that ends
with `serve(Contestant)`. Its arguments are the database's address and the server's process id. It reads one
JSON object a line, `do` naming a function of `course`, and answers each with one line; with `None` where the
queue has no such thing.
This folder is all that a script of another project shares with the rest: it needs nothing but the standard library
until something is asked that needs more.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from downstream import Downstream

BODY = {"order_id": 12345, "amount": 99.5}
OnMessage = Callable[[Any], None]


class Unsupported(Exception):
    """The queue has no such thing."""


class Contestant:
    """One queue. Subclasses override what it can do; everything else is `Unsupported`."""

    packages: tuple[str, ...] = ()
    """Distributions whose versions are printed."""
    uvloop = False
    """Whether its own documents run it on uvloop."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    async def open(self) -> None:
        """Connect; called once."""

    async def rest(self) -> None:
        """Close connections that are not in use: the server counts what they did when they end."""

    async def reset(self) -> None:
        """Empty tables, and an empty table `business (id bigserial, note text)`."""
        raise Unsupported

    async def backlog(self, messages: int, keys: int = 0) -> None:
        """So many messages, ready to be handled; with `keys`, spread over so many keys."""
        raise Unsupported

    async def others(self, rows: int) -> None:
        """So many messages of other queues in the same table, due tomorrow."""
        raise Unsupported

    async def churn(self, rows: int) -> None:
        """Insert and delete so many rows, so that they are dead."""
        raise Unsupported

    def consumer(
        self, settings: str, on_message: OnMessage, *, sleep: float = 0.0, workers: int | None = None
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Consume while entered, and call `on_message` with each body; once left, all outcomes are written."""
        raise Unsupported

    def relay(
        self, settings: str, behind: "Downstream", *, workers: int | None = None
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """While entered, hand each message on to a stream, by a publisher of the `NatsBroker` there."""
        raise Unsupported

    async def left(self) -> int:
        """How many messages are not finished."""
        raise Unsupported

    async def publish_single(self, how: str, messages: int) -> None:
        """So many transactions one after the other, each with a row of `business` and one message."""
        raise Unsupported

    async def publish_thousand(self, how: str, messages: int) -> None:
        """A thousand messages in each transaction."""
        raise Unsupported

    async def publish_marked(self, number: int, committing: Callable[[], None]) -> None:
        """One message with the body `{"n": number}`; call `committing` just before COMMIT is sent."""
        raise Unsupported

    async def publish_timers(self, due: list[float]) -> None:
        """Messages with the bodies `{"n": 0}`, `{"n": 1}`, …, due at these times since the epoch."""
        raise Unsupported


def serve(kind: type[Contestant]) -> None:
    """Answer questions until the input ends."""
    import course

    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with asyncio.Runner(loop_factory=_loop_factory(kind)) as runner:
        contestant = kind(sys.argv[1])
        runner.run(contestant.open())
        for line in sys.stdin:
            question: dict[str, Any] = json.loads(line)
            answer: Any
            try:
                answer = runner.run(getattr(course, question.pop("do"))(contestant, **question))
            except Unsupported:
                answer = None
            except Exception:  # noqa: BLE001 - the harness tells it and goes on
                answer = {"error": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")


def _loop_factory(kind: type[Contestant]) -> Any:
    if not kind.uvloop:
        return None
    import uvloop

    return uvloop.new_event_loop


def versions(contestant: Contestant) -> dict[str, str]:
    """The versions of what it is made of."""
    return {name: version(name) for name in contestant.packages}


def rss() -> int:
    """Bytes of memory that the process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def server_cpu() -> float:
    """CPU seconds of the server's processes so far, of those that have ended too."""
    postmaster = sys.argv[2]
    while True:
        before = _ticks(postmaster)
        running = sum(
            int(fields[11]) + int(fields[12])
            for fields in map(_ticks, filter(str.isdigit, os.listdir("/proc")))
            if fields and fields[1] == postmaster
        )
        # A process that ended meanwhile is counted by the postmaster, and perhaps here too: once more, then.
        if _ticks(postmaster)[13:15] == before[13:15]:
            return (running + sum(int(field) for field in before[11:15])) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


class Clock:
    """Wall and CPU time of this process and of the server since it was made."""

    def __init__(self) -> None:
        self.server_began = server_cpu()
        self.began, self.cpu_began = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """Wall time."""
        return time.perf_counter() - self.began

    @property
    def cpu(self) -> float:
        """CPU time of this process."""
        return time.process_time() - self.cpu_began

    @property
    def server(self) -> float:
        """CPU time of the server."""
        return server_cpu() - self.server_began
