"""The tables of a fault test of the log: the log, the business that publishes into it, and who watches both.

`aggregates` has the last version of every name, counted in the transactions that publish: it is the truth about
what must be delivered. `effects` is written by transactional handlers, `handled` by plain ones on connections of
their own, if need be in another server. A trigger keeps every cursor that was moved backwards in `reversals`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, Self, cast

import psycopg
from psycopg import sql
from sqlalchemy import URL, MetaData, create_engine

from faststream_outbox.log import LogTables, make_log_tables
from tests.faults.log_account import Event, LogAccount, log_account
from tests.waiting import eventually

LOG = "stream"
OFFSETS = "stream_offsets"
TOPIC = "orders"
STANDSTILL = 30.0

_BUSINESS = """
drop table if exists aggregates, notes, effects, reversals cascade;
create table aggregates (name text primary key, version int not null);
create table notes (id bigserial primary key, note text);
create table effects (seq bigserial primary key, name text not null, version int not null, pid int not null);
create table reversals (lo int, epoch bigint, owner uuid, old_tick bigint, new_tick bigint);
create or replace function keep_reversal() returns trigger language plpgsql as $$
begin
    insert into reversals values (new.lo, new.epoch, new.owner, old.tick, new.tick);
    return null;
end $$;
create trigger keep_reversal after update on stream_offsets for each row
    when ((new.tick, new.position) < (old.tick, old.position)) execute function keep_reversal();
"""

_HANDLED = """
drop table if exists handled;
create table handled (
    seq bigserial primary key, name text not null, version int not null, pid int not null,
    at timestamptz not null default clock_timestamp()
);
"""


def log_tables(metadata: MetaData | None = None) -> LogTables:
    return make_log_tables(metadata or MetaData(), LOG, OFFSETS)


@dataclass(frozen=True, slots=True)
class LogScene:
    """Where the log is and where plain handlers keep their record; both as libpq addresses."""

    world: str
    record: str

    @classmethod
    @contextmanager
    def standing(cls, world: str, record: str) -> Iterator[Self]:
        """A scene for the length of the block."""
        scene = cls(world, record)
        scene.set_up()
        yield scene
        scene.tear_down()

    def set_up(self) -> None:
        """Create all tables, empty."""
        self._change_tables("drop_all", "create_all")
        self._execute(self.world, _BUSINESS)
        self._execute(self.record, _HANDLED)

    def tear_down(self) -> None:
        """Drop all tables; what a killed worker had open is gone by then, or is ended."""
        others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        self._execute(self.world, f"{others} and pid <> pg_backend_pid() and backend_type = 'client backend'")
        self._change_tables("drop_all")
        self._execute(self.world, "drop table aggregates, notes, effects, reversals")
        self._execute(self.world, "drop function keep_reversal()")
        self._execute(self.record, "drop table handled")

    def _change_tables(self, *changes: str) -> None:
        metadata = MetaData()
        log_tables(metadata)
        engine = create_engine(self.world.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            for change in changes:
                getattr(metadata, change)(connection)
        engine.dispose()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Rows of the log's database."""
        with psycopg.connect(self.world, autocommit=True) as connection:
            return connection.execute(cast("LiteralString", question)).fetchall()

    def versions(self) -> dict[str, int]:
        """The last committed version of every name."""
        return dict(self.ask("select name, version from aggregates"))

    def effects(self) -> list[Event]:
        """What transactional handlers did, in the order of doing."""
        return [(name, version) for name, version in self.ask("select name, version from effects order by seq")]

    def handled(self) -> list[Event]:
        """What plain handlers did, in the order of doing."""
        with psycopg.connect(self.record, autocommit=True) as connection:
            return connection.execute("select name, version from handled order by seq").fetchall()

    def parked(self, group: str) -> set[Event]:
        """What a group has deferred for good."""
        return {
            (payload["name"], payload["version"])
            for (payload,) in self.ask(
                f"select l.payload from {LOG}_deferred a join {LOG} l using (position)"
                f" where a.state = 'parked' and a.consumer_group = '{group}'"
            )
        }

    def account(self, group: str, done: list[Event]) -> LogAccount:
        """What became of everything that was committed."""
        return log_account(self.versions(), done, self.parked(group))

    def left(self, group: str, *, plain: bool = False) -> int:
        """Messages that the group has neither done nor parked."""
        return len(self.account(group, self.handled() if plain else self.effects()).lost)

    async def is_finished(self, group: str, *, plain: bool = False) -> None:
        """Wait until nothing is left, as long as the group gets on with it; say what it holds where it does not."""
        left = self.left(group, plain=plain)
        while left:
            spans = self.ask(f"select lo, hi, tick, position, epoch, owner, until - clock_timestamp() from {OFFSETS}")
            deferral = self.ask(
                f"select state, count(*), min(due - clock_timestamp()) from {LOG}_deferred group by state"
            )
            lost = sorted(self.account(group, self.handled() if plain else self.effects()).lost)[:3]
            message = (
                f"the group gets on with {left} messages, such as {lost}; its spans are {spans}, "
                f"deferred are {deferral}; {self._sequenced()}"
            )
            less = lambda before=left: self.left(group, plain=plain) < before  # noqa: E731
            await eventually(less, STANDSTILL, message)
            left = self.left(group, plain=plain)

    def _sequenced(self) -> str:
        """How far ticks have come, and what could hold them up."""
        head = self.ask(f"select tick, high, lows, highs from {LOG}_head")
        last = self.ask(f"select max(position) from {LOG}")
        open_ones = self.ask(
            "select pid, state, now() - xact_start, left(query, 60) from pg_stat_activity where xact_start is not null"
        )
        return f"the head is {head}, the last message {last}; transactions are {open_ones}"

    @staticmethod
    def _execute(dsn: str, statements: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(cast("LiteralString", statements))


@contextmanager
def idle_writer(database_url: URL) -> Iterator[psycopg.Connection]:
    """A transaction that has written and stays open, in another database of the same cluster."""
    name = sql.Identifier(f"{database_url.database}_foreign")
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        admin.execute(sql.SQL("create database {}").format(name))
        foreign = database_url.set(drivername="postgresql", database=f"{database_url.database}_foreign")
        try:
            with psycopg.connect(foreign.render_as_string(hide_password=False)) as connection:
                connection.execute("create table ledger (note text)")
                connection.execute("insert into ledger values ('unfinished')")
                yield connection
                connection.rollback()
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(name))
