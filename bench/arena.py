"""The arena: one PostgreSQL, a database for each peer, and the peers that have been asked something so far.

Only one peer is busy at a time. A scenario may hold an old snapshot open in a peer's database while it runs, and
read how much WAL and how many transactions a question took.
"""

import contextlib
import os
import platform
import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg

from bench.peer import PeerProcess, peers
from bench.stage import SETTINGS
from faststream_outbox.testing.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class Spent:
    """What the server counted."""

    wal_bytes: int
    wal_records: int
    transactions: int
    updates: int
    hot_updates: int


_SPENT = """
    select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
           (select wal_records from pg_stat_wal),
           (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()),
           (select coalesce(sum(n_tup_upd), 0)::bigint from pg_stat_user_tables),
           (select coalesce(sum(n_tup_hot_upd), 0)::bigint from pg_stat_user_tables)
"""


class Arena:
    """A server, and processes that are connected to it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._running: dict[str, PeerProcess] = {}

    @classmethod
    @contextlib.contextmanager
    def open(cls, version: int = 18) -> Generator[Self, None, None]:
        """For the length of a run."""
        with PostgresServer.start(version=version, settings=SETTINGS) as server:
            arena = cls(server)
            try:
                yield arena
            finally:
                for process in arena._running.values():
                    process.close()

    def peer(self, name: str) -> PeerProcess:
        """The process of a peer, with a database of its own."""
        if name not in self._running:
            self.server.create_database(name)
            self._running[name] = self.another(name)
        return self._running[name]

    def another(self, name: str) -> PeerProcess:
        """One more process of a peer, on the same database."""
        return PeerProcess(peers()[name], self.server.dsn(name), self.server.pid)

    def connect(self, name: str) -> psycopg.Connection[Any]:
        """A connection to a peer's database."""
        return psycopg.connect(self.server.dsn(name, driver=""), autocommit=True)

    @contextlib.contextmanager
    def held_snapshot(self, name: str) -> Generator[None, None, None]:
        """A repeatable-read transaction that stays open, as an analyst's does."""
        with self.connect(name) as connection:
            connection.execute("begin isolation level repeatable read")
            # A snapshot that holds nothing but itself: the peer may drop its tables.
            connection.execute("select 1")
            yield
            connection.execute("rollback")

    def come_to_rest(self, name: str) -> None:
        """Have the server do now what filling a peer's tables has left for later."""
        with self.connect(name) as connection:
            connection.execute("vacuum (analyze)")
            connection.execute("checkpoint")

    def spent(self, name: str) -> Spent:
        """What the server has counted in a peer's database; waits until its processes have reported."""
        with self.connect(name) as connection:
            time.sleep(1.2)
            row = connection.execute(_SPENT).fetchone()
            assert row is not None
            return Spent(*(int(value) for value in row))

    def facts(self) -> dict[str, Any]:
        """Date, machine, settings and versions."""
        with psycopg.connect(self.server.dsn(driver="")) as connection:
            row = connection.execute("show server_version").fetchone()
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "postgresql": row[0] if row else "",
            "settings": SETTINGS,
            "versions": {name: process.ask(do="describe") for name, process in self._running.items()},
        }


class Neighbours:
    """How much of the machine others used since this was made, as a share of all of its cores."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy(), _own()

    def share(self) -> float:
        """Until now."""
        cores = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return max(0.0, (_busy() - self._busy) - (_own() - self._own)) / cores


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in ("idle", "iowait", "steal")))


def _own() -> float:
    """CPU of this process and all that it started, of those that have ended too."""
    this, spent = psutil.Process(), 0.0
    for process in [this, *this.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
