"""The scene of an upgrade: the tables of an earlier version, processes of both, and who watches.

`sent` and `handled` are written by the processes (`upgrade_child`); a trigger keeps every lease that goes from one
holder to another in `taken_over`.
"""

import asyncio
import os
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.rows import class_row
from sqlalchemy import create_engine

from bench.migration import BOTH, migrate
from tests.faults import upgrade_child
from tests.faults.account import LeaseChange
from tests.faults.forked import ROOT
from tests.faults.processes import AnyPart, Troupe, WorkerProcess
from tests.faults.scene import Place
from tests.faults.upgrade_account import Sent, SideRun, UpgradeAccount, upgrade_account
from tests.waiting import eventually

OLD, NEW = "old", "new"
LEASE_SECONDS = 3.0

_WATCHERS = """
create table sent (n text primary key, kind text not null, id bigint not null, due timestamptz not null);
create table handled (
    seq bigserial primary key, n text not null, side text not null, pid int not null,
    started timestamptz not null default clock_timestamp(), ended timestamptz, outcome text
);
create table taken_over (
    id bigint not null, key text, old_token uuid not null, old_at timestamptz not null,
    new_token uuid not null, new_at timestamptz not null, at timestamptz not null default clock_timestamp()
);
create function keep_lease() returns trigger language plpgsql as $$
begin
    insert into taken_over
    values (old.id, null, old.acquired_token, old.acquired_at, new.acquired_token, new.acquired_at);
    return null;
end $$;
create trigger keep_lease after update on outbox for each row
    when (old.acquired_token is not null and new.acquired_token <> old.acquired_token) execute function keep_lease();
"""
_LONG_AGO = "started < clock_timestamp() - interval '0.5 s'"
_CLEAR = """
drop table if exists outbox, outbox_dlq, sent, handled, taken_over cascade;
drop function if exists keep_lease();
"""


@dataclass(frozen=True, slots=True)
class Part(AnyPart):
    """What a child plays, and the folder in which it finds the package."""

    role: str
    dsn: str
    side: str
    package: Path

    def to_json(self) -> str:
        return str(asdict(self))


class CrewProcess(WorkerProcess):
    """A child that runs `upgrade_child.py` with one of the packages, and has to import it first."""

    patience = 120.0

    @classmethod
    async def start(cls, part: AnyPart) -> Self:
        """Start it and wait until it says that it works."""
        assert isinstance(part, Part)
        child = cls(await spawn(part))
        try:
            await child.reaches("ready")
        except BaseException:
            await child.kill()
            raise
        return child

    def hang(self) -> None:
        """Let every handler that begins from now on hang."""
        self._process.send_signal(signal.SIGUSR1)

    def publish_no_more(self) -> None:
        """Let it end with what it publishes."""
        self._process.send_signal(signal.SIGUSR2)


async def spawn(part: Part) -> asyncio.subprocess.Process:
    """A process that imports nothing of this repository but the package, and that only where it is told to."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        str(upgrade_child.__file__),
        part.role,
        part.dsn,
        part.side,
        str(LEASE_SECONDS),
        cwd=tempfile.gettempdir(),
        env={**os.environ, "PYTHONPATH": str(part.package)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


@dataclass
class UpgradeScene(Place):
    """One database, an earlier package in `earlier`, and the processes of both."""

    world: str
    earlier: Path
    crew: Troupe[CrewProcess]
    is_stopping_safe: bool
    """Versions before 0.5.3 delete, unhandled, what they claim while they stop; a kill loses nothing."""
    of: dict[str, list[CrewProcess]] = field(default_factory=dict)

    async def set_up(self) -> None:
        """The earlier version's tables, as it makes them itself."""
        self.execute(_CLEAR)
        making = await spawn(self._part("tables", OLD))
        assert await making.wait() == 0
        self.execute(_WATCHERS)

    def tear_down(self) -> None:
        """Drop all tables."""
        self.end_sessions()
        self.execute(_CLEAR)

    @property
    def has_dead_letters(self) -> bool:
        """Whether the earlier version keeps any."""
        return bool(self.ask("select to_regclass('outbox_dlq') is not null")[0][0])

    async def join(self, side: str, *, workers: int = 1) -> None:
        """Processes of one side come: one publishes too."""
        roles = ["publish", *["work"] * (workers - 1)]
        self.of[side] = await self.crew.start(*(self._part(role, side) for role in roles))

    async def kill_one(self, side: str) -> None:
        """kill -9 for one worker, with messages in flight."""
        killed = self.of[side].pop()
        killed.hang()
        hangs = f"select 1 from handled where pid = {killed.pid} and ended is null and {_LONG_AGO} limit 1"
        await eventually(lambda: self.ask(hangs), message=hangs)
        await killed.kill()

    async def stop_publishing(self, side: str) -> None:
        """Whoever publishes of one side ends that, and goes on working."""
        self.of[side][0].publish_no_more()
        await self.of[side][0].reaches("published")

    async def leave(self, side: str) -> None:
        """All processes of one side end, gracefully where that loses nothing."""
        for child in self.of.pop(side):
            if side == OLD and not self.is_stopping_safe:
                await child.kill()
            else:
                assert await child.stop() == 0

    async def is_empty(self) -> None:
        """Wait until everything was handled, as long as somebody gets on with it."""
        left = "select count(*) from outbox"
        await self.gets_on(lambda: int(self.ask(left)[0][0]), lambda left: f"somebody gets on with {left} messages")

    async def handles(self, *sides: str, more: int = 20) -> None:
        """Wait until each of the sides has done some more messages."""
        for side in sides:
            done = f"select count(*) from handled where outcome = 'done' and side = '{side}'"
            before = self.ask(done)[0][0]
            await eventually(lambda done=done, before=before: self.ask(done)[0][0] >= before + more, message=done)

    async def migrate(self, step: str, tables: tuple[str, ...] = BOTH) -> None:
        """Run a step of the page's migration, while everybody works."""
        engine = create_engine(self.world.replace("postgresql://", "postgresql+psycopg://"))
        try:
            await asyncio.to_thread(migrate, engine, step, tables)
        finally:
            engine.dispose()

    def account(self, *, dropping: frozenset[str] = frozenset()) -> UpgradeAccount:
        """What became of everything that was committed."""
        with psycopg.connect(self.world) as connection:
            taken = connection.cursor(row_factory=class_row(LeaseChange))
            runs = connection.cursor(row_factory=class_row(SideRun))
            sent = connection.cursor(row_factory=class_row(Sent))
            return upgrade_account(
                sent=sent.execute("select n, kind, id, due from sent").fetchall(),
                runs=runs.execute(
                    "select n as message_id, 1 as delivery, pid, null as key, 1 as version, started as acquired_at,"
                    " started, ended, outcome, side from handled"
                ).fetchall(),
                leases=taken.execute("select * from taken_over").fetchall(),
                left={row[0] for row in self.ask("select id from outbox")},
                dead=[row[0] for row in self.ask("select original_id from outbox_dlq")],
                lease_seconds=LEASE_SECONDS,
                dropping=dropping,
            )

    def histories(self, account: UpgradeAccount) -> list[tuple[Any, ...]]:
        """What is known of the messages that went wrong, for whoever reads a failure."""
        wrong = account.lost | account.left | account.twice | account.again | account.early
        known = "select n, s.id, kind, due, side, pid, started, ended, outcome from sent s left join handled using (n)"
        return [row for row in self.ask(f"{known} order by seq") if row[0] in wrong]

    def _part(self, role: str, side: str) -> Part:
        return Part(role, self.world, side, self.earlier if side == OLD else ROOT)
