"""The tables of a fault test of the log: the log, the business that publishes into it, and who watches both.

`aggregates` has the last version of every name, counted in the transactions that publish: it is the truth about
what must be delivered. `effects` is written by transactional handlers, `handled` by plain ones on connections of
their own, if need be in another server. A trigger keeps every cursor that was moved backwards in `reversals`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql
from sqlalchemy import URL, MetaData

from faststream_outbox.log import LogTables, make_log_tables
from tests.faults.log_account import Event, LogAccount, log_account
from tests.faults.scene import Place

LOG = "stream"
OFFSETS = "stream_offsets"
TOPIC = "orders"

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
class LogScene(Place):
    """Where the log is and where plain handlers keep their record; both as libpq addresses."""

    world: str
    record: str

    def set_up(self) -> None:
        """Create all tables, empty."""
        metadata = MetaData()
        log_tables(metadata)
        self.change_tables(metadata, "drop_all", "create_all")
        self.execute(_BUSINESS)
        self.execute(_HANDLED, self.record)

    def tear_down(self) -> None:
        """Drop all tables."""
        self.end_sessions()
        metadata = MetaData()
        log_tables(metadata)
        self.change_tables(metadata, "drop_all")
        self.execute("drop table aggregates, notes, effects, reversals; drop function keep_reversal()")
        self.execute("drop table handled", self.record)

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
        questions = {
            "spans": f"select lo, hi, tick, position, epoch, owner, until - clock_timestamp() from {OFFSETS}",
            "deferred": f"select state, count(*), min(due - clock_timestamp()) from {LOG}_deferred group by state",
            "the head": f"select tick, high, lows, highs from {LOG}_head",
            "the last message": f"select max(position) from {LOG}",
            "transactions": "select pid, state, now() - xact_start, left(query, 60) from pg_stat_activity"
            " where xact_start is not null",
        }
        await self.gets_on(
            lambda: self.left(group, plain=plain),
            lambda left: (
                f"the group gets on with {left} messages; "
                f"{ {what: self.ask(question) for what, question in questions.items()} }"
            ),
        )


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
