"""`python -m bench.rolling`: a rolling deploy from 0.19 on tables with a million rows each, migrated under everybody.

Publishers and workers of 0.19 run; the migration of docs/migrating.md runs under them; ours join; theirs leave; the
step after the deploy runs. Counted are messages sent, handled, lost and doubled; measured is the longest time that a
publisher's transaction took and that a message waited, in each phase. At the end a single old worker is woken by a
single new publisher and the other way round, with nothing else going on.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import create_engine

from bench.migration import AFTER, BEFORE, former_tables, migrate
from bench.peer import HOME, ROOT, peers
from bench.stage import SETTINGS
from faststream_outbox.testing.postgres import PostgresServer

OLD, NEW = "0.19", "ours"
FILL = (
    "insert into outbox (queue, payload, next_attempt_at)"
    " select 'later', '{{}}', now() + interval '1 day' from generate_series(1, {rows})",
    "insert into outbox_dlq (original_id, queue, payload, deliveries_count, created_at, failure_reason)"
    " select i, 'orders', '{{}}', 3, now(), 'retry_terminal' from generate_series(1, {rows}) i",
    "vacuum analyze outbox, outbox_dlq",
)
DRAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Done:
    """A message that was published, or handled, by one process; `seconds` is how long that took or was awaited."""

    version: str
    number: str
    at: float
    seconds: float


class Member:
    """A process of the crew."""

    def __init__(self, role: str, version: str, dsn: str, name: str, pace: float = 0.02) -> None:
        self.role, self.version = role, version
        python = peers()["outbox19"].python() if version == OLD else Path(sys.executable)
        folders = [str(HOME / "track"), *([] if version == OLD else [str(ROOT)])]
        self._process = subprocess.Popen(
            [python, "-P", HOME / "track" / "crew.py", role, dsn, name, str(pace)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tempfile.gettempdir(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"A {role} of {version} did not start.")

    def end(self) -> list[Done]:
        """Let it finish; what it did."""
        answer, _ = self._process.communicate("", timeout=120)
        return [Done(self.version, *values) for values in json.loads(answer)]


class Story:
    """What happened, and in which phase."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, float]] = []
        self.published: list[Done] = []
        self.handled: list[Done] = []

    def begin(self, phase: str) -> None:
        """Another phase."""
        now = time.time()
        if self.phases:
            print(f"  ({now - self.phases[-1][1]:.1f} s)", flush=True)
        print(phase, flush=True)
        self.phases.append((phase, now))

    def end(self, member: Member) -> None:
        """A process leaves."""
        (self.published if member.role == "publish" else self.handled).extend(member.end())

    def account(self) -> dict[str, int]:
        """What became of the messages."""
        sent, handled = {done.number for done in self.published}, Counter(done.number for done in self.handled)
        return {
            "sent": len(sent),
            "handled": len(handled),
            "lost": len(sent - set(handled)),
            "doubled": handled.total() - len(handled),
            "unknown": len(set(handled) - sent),
        }

    def lines(self) -> list[str]:
        """The account, and a row for each phase."""
        rows = [
            ", ".join(f"{name} {count}" for name, count in self.account().items()),
            "milliseconds: the longest transaction of a publisher; how long messages waited (median, longest)",
            "",
            "| phase | published by 0.19 | by ours | handled by 0.19 | by ours |",
            "|---|---|---|---|---|",
        ]
        ends = [at for _, at in self.phases[1:]] + [float("inf")]
        for (phase, start), stop in zip(self.phases, ends, strict=True):
            cells = [phase]
            for done in (self.published, self.handled):
                for version in (OLD, NEW):
                    times = [one.seconds * 1000 for one in done if one.version == version and start <= one.at < stop]
                    median = f"{statistics.median(times):.0f}, " if times and done is self.handled else ""
                    cells.append(f"{len(times)}: {median}{max(times):.0f}" if times else "")
            rows.append("| " + " | ".join(cells) + " |")
        return rows


def _make(dsn: str, rows: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(former_tables().encode())
        for statement in FILL:
            connection.execute(statement.format(rows=rows).encode())


def _is_drained(connection: psycopg.Connection[Any]) -> bool:
    return connection.execute("select 1 from outbox where queue = 'orders' limit 1").fetchone() is None


def _drain(dsn: str) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not _is_drained(connection) and time.monotonic() < deadline:
            time.sleep(0.1)


def roll(server: PostgresServer, rows: int, seconds: float) -> Story:
    """The whole deploy."""
    server.create_database("rolling")
    dsn, plain = server.dsn("rolling"), server.dsn("rolling", driver="")
    engine = create_engine(server.dsn("rolling", driver="psycopg"))
    _make(plain, rows)
    story = Story()
    story.begin("0.19 alone")
    workers = [Member("work", OLD, dsn, f"old-{number}") for number in range(2)]
    publishers = [Member("publish", OLD, dsn, f"old-{number}") for number in range(2)]
    time.sleep(seconds)
    story.begin("the migration")
    migrate(engine, BEFORE)
    story.begin("ours join")
    publishers += [Member("publish", NEW, dsn, f"new-{number}") for number in range(2)]
    workers += [Member("work", NEW, dsn, f"new-{number}") for number in range(2)]
    time.sleep(seconds)
    story.begin("0.19 leaves")
    for member in [*publishers[:2], *workers[:2]]:
        story.end(member)
    time.sleep(seconds / 2)
    story.begin("after the deploy")
    migrate(engine, AFTER)
    time.sleep(seconds / 2)
    story.begin("the last messages")
    for member in publishers[2:]:
        story.end(member)
    _drain(plain)
    for member in workers[2:]:
        story.end(member)
    engine.dispose()
    return story


def wake(server: PostgresServer, messages: int) -> list[str]:
    """How soon a sleeping worker of one version hears of a message of the other."""
    server.create_database("waking")
    dsn, plain = server.dsn("waking"), server.dsn("waking", driver="")
    engine = create_engine(server.dsn("waking", driver="psycopg"))
    _make(plain, 100)
    migrate(engine, BEFORE)
    lines: list[str] = []
    for publishes, works in ((NEW, OLD), (OLD, NEW), (OLD, OLD), (NEW, NEW)):
        worker = Member("work", works, dsn, "worker")
        # The first one comes when the worker has gone to sleep for long.
        time.sleep(5)
        publisher = Member("publish", publishes, dsn, f"{publishes}-{works}", pace=1.7)
        time.sleep(1.7 * messages - 0.5)
        publisher.end()
        _drain(plain)
        waits = sorted(done.seconds * 1000 for done in worker.end())
        took = f"median {statistics.median(waits):.0f} ms, longest {waits[-1]:.0f} ms"
        lines.append(f"published by {publishes}, handled by {works}: {took}")
    engine.dispose()
    return lines


def main() -> None:
    """Run and print."""
    options = argparse.ArgumentParser(prog="bench.rolling")
    options.add_argument("--rows", type=int, default=1_000_000, help="of each table")
    options.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    options.add_argument("--messages", type=int, default=8, help="to sleeping workers; 0 leaves that out")
    chosen = options.parse_args()
    try:
        peers()["outbox19"].python()
    except subprocess.CalledProcessError:
        print("faststream-outbox 0.19 cannot be installed (is PyPI reachable?): left out")
        return
    with PostgresServer.start(settings=SETTINGS) as server:
        print("\n".join(roll(server, chosen.rows, chosen.seconds).lines()), flush=True)
        if chosen.messages:
            print("\n".join(["", *wake(server, chosen.messages)]))


if __name__ == "__main__":
    main()
