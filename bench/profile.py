"""`python -m bench.profile`: where the time of one message goes.

A timer of CPU time interrupts the process every millisecond and notes which package the running frame belongs to;
what a driver does in C counts for the frame that called it. Beside it, the server's CPU.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

from bench.page import PAGE, put
from bench.peer import HOME
from bench.stage import SETTINGS
from faststream_outbox.testing.postgres import PostgresServer

sys.path.insert(0, str(HOME / "track"))
sys.path.insert(0, str(HOME / "peers"))

EVERY = 0.001
SINGLE = 2000
GROUPS = (
    ("faststream_outbox/_internal/broker", "this package, broker"),
    ("faststream_outbox/_internal/queue", "this package, engine"),
    ("faststream_outbox/_internal/outcomes", "this package, engine"),
    ("faststream_outbox/_internal/events", "this package, engine"),
    ("faststream_outbox/_internal/publish", "this package, publish"),
    ("faststream_outbox/_internal/envelope", "this package, publish"),
    ("faststream_outbox/_internal/wakeup", "this package, wake-ups"),
    ("faststream_outbox/_internal/sql", "this package, statements"),
    ("faststream_outbox", "this package, else"),
    ("fast_depends", "FastStream: dependencies and validation"),
    ("pydantic", "FastStream: dependencies and validation"),
    ("faststream/", "FastStream: consume and publish"),
    ("sqlalchemy", "SQLAlchemy"),
    ("greenlet", "SQLAlchemy"),
    ("asyncpg", "asyncpg"),
    ("logging", "logging"),
    ("asyncio", "event loop and what it calls in C"),
    ("selectors", "event loop and what it calls in C"),
    ("json", "json"),
    ("bench", "the benchmark itself"),
)


def group_of(frame: FrameType | None) -> str:
    """The package that a frame belongs to; the standard library's small parts belong to their caller."""
    while frame is not None:
        path = frame.f_code.co_filename
        for part, name in GROUPS:
            if part in path:
                return name
        frame = frame.f_back
    return "else"


class Samples:
    """Counts samples by package while it is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.counts[group_of(frame)] += 1

    def __enter__(self) -> "Samples":
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


Profile = dict[str, float]
"""Microseconds a message, by what took them."""
WALL, SERVER, PYTHON = "wall time", "CPU of the server", "CPU of Python"


async def profiled(messages: int, prepare: Callable[[], Awaitable[Any]], run: Callable[[], Any]) -> Profile:
    """Where the time of one workload went."""
    from contest import Clock  # type: ignore[import-not-found]  # a module of bench/track

    await prepare()
    clock = Clock()
    with Samples() as samples:
        await run()
    seconds, cpu, server = clock.seconds, clock.cpu, clock.server
    total = samples.counts.total()
    parts = {name: count / total * cpu for name, count in samples.counts.most_common()}
    found = {WALL: seconds, SERVER: server, PYTHON: cpu} | parts
    return {name: spent / messages * 1e6 for name, spent in found.items()}


def table(profiles: dict[str, Profile]) -> list[str]:
    """A column for each workload, a row for each thing that takes time."""
    names = dict.fromkeys(name for profile in profiles.values() for name in profile)
    rows = sorted(
        (name for name in names if name not in {WALL, SERVER, PYTHON}),
        key=lambda name: -max(profile.get(name, 0.0) / profile[PYTHON] for profile in profiles.values()),
    )
    text = ["| µs a message | " + " | ".join(profiles) + " |", "|---" + "|---:" * len(profiles) + "|"]
    for name in (WALL, SERVER, PYTHON, *rows):
        cells = [profile.get(name, 0.0) for profile in profiles.values()]
        if any(cell > profile[PYTHON] * 0.01 for cell, profile in zip(cells, profiles.values(), strict=True)):
            shown = (f"{cell:.0f}" if cell >= 100 else f"{cell:.1f}" if cell >= 0.05 else "" for cell in cells)
            text.append(f"| {name if name in {WALL, SERVER, PYTHON} else '– ' + name} | " + " | ".join(shown) + " |")
    return text


async def main(server: PostgresServer, messages: int) -> list[str]:
    """Profile a drain with default settings, the best ones, the engine alone, and publishing."""
    from ours import Ours  # type: ignore[import-not-found]  # a script of bench/peers

    sys.argv[1:] = [server.dsn(), str(server.pid)]
    ours: Any = Ours(server.dsn())
    await ours.open()

    def drain(settings: str, count: int) -> Callable[[], Awaitable[Any]]:
        async def run() -> None:
            done, handled = asyncio.Event(), 0

            def on_message(body: object) -> None:
                nonlocal handled
                handled += 1
                if handled == count:
                    done.set()

            async with ours.consumer(settings, on_message):
                await done.wait()

        return run

    async def filled(count: int) -> None:
        await ours.reset()
        await ours.backlog(count)

    profiles: dict[str, Profile] = {}
    for title, settings, count in (
        ("drain, defaults", "defaults", messages // 2),
        ("access log off", "quiet", messages // 2),
        ("best settings", "tuned", messages),
        ("engine alone", "engine", messages * 4),
    ):
        profiles[title] = await profiled(count, partial(filled, count), drain(settings, count))
    thousands = messages // 1000 * 1000
    for title, how in (("publish 1,000 a transaction", "after_commit"), ("the same, engine", "engine")):
        profiles[title] = await profiled(thousands, ours.reset, partial(ours.publish_thousand, how, thousands))
    for title, how in (("publish one", "after_commit"), ("bare INSERT", "bare insert")):
        profiles[title] = await profiled(SINGLE, ours.reset, partial(ours.publish_single, how, SINGLE))
    return table(profiles)


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="bench.profile")
    options.add_argument("--messages", type=int, default=40_000)
    options.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    chosen = options.parse_args()
    # The access log is written, and not read.
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    with PostgresServer.start(settings=SETTINGS) as started:
        found = asyncio.run(main(started, chosen.messages))
    sys.stdout.flush()
    os.dup2(kept, 1)
    print("\n".join(found))
    if chosen.write:
        put(PAGE, "profile", found)
