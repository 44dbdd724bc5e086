"""The tables of a fault test: the outbox, the business that publishes into it, and who watches both.

`orders` has a row for every message whose transaction committed, written in that transaction: it is the truth
about what must be handled. A trigger keeps every change of a lease, renewals and deletions included, in
`leases`. `handled` is written by the workers on connections of their own, in autocommit and if need be in
another server, so that what ran is known although the worker or the outbox's server was killed.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, LiteralString, cast
from uuid import UUID

import psycopg
from psycopg.rows import class_row
from sqlalchemy import MetaData, create_engine

from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.faults.account import Account, LeaseChange, Run, account, held
from tests.faults.child import EFFECTS
from tests.waiting import eventually

STANDSTILL = 30.0

_BUSINESS = """
drop table if exists orders, versions, effects, leases cascade;
create table orders (message_id uuid primary key, queue text not null, key text, version int not null);
create table versions (key text primary key, version int not null);
create table effects (message_id uuid primary key, times int not null);
create table leases (
    seq bigserial primary key, at timestamptz not null default clock_timestamp(), id bigint not null, key text,
    old_token uuid, old_at timestamptz, new_token uuid, new_at timestamptz
);
create or replace function keep_lease() returns trigger language plpgsql as $$
begin
    insert into leases (id, key, old_token, old_at, new_token, new_at)
    values (old.id, old.queue || ' ' || old.key, old.acquired_token, old.acquired_at,
            case tg_op when 'UPDATE' then new.acquired_token end, case tg_op when 'UPDATE' then new.acquired_at end);
    return null;
end $$;
create trigger keep_lease after update or delete on outbox for each row execute function keep_lease();
"""

_HANDLED = """
drop table if exists handled;
create table handled (
    seq bigserial primary key, message_id uuid not null, delivery bigint not null, pid int not null, key text,
    version int not null, acquired_at timestamptz not null, started timestamptz not null default clock_timestamp(),
    ended timestamptz, outcome text
);
"""


class Place:
    """A database with the tables of a test, by its libpq address."""

    world: str

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Rows of it."""
        with psycopg.connect(self.world, autocommit=True) as connection:
            return connection.execute(cast("LiteralString", question)).fetchall()

    def execute(self, statements: str, dsn: str | None = None) -> None:
        """Run statements, here or in another database."""
        with psycopg.connect(dsn or self.world, autocommit=True) as connection:
            connection.execute(cast("LiteralString", statements))

    def end_sessions(self) -> None:
        """End what a killed process had open."""
        others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        self.execute(f"{others} and pid <> pg_backend_pid() and backend_type = 'client backend'")

    def change_tables(self, metadata: MetaData, *changes: str) -> None:
        """`drop_all`, `create_all`, or both."""
        engine = create_engine(self.world.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            for change in changes:
                getattr(metadata, change)(connection)
        engine.dispose()

    async def gets_on(self, left: Callable[[], int], message: Callable[[int], str]) -> None:
        """Wait until nothing is left, as long as somebody gets on with it; say what is left where nobody does."""
        now = left()
        while now:
            await eventually(lambda before=now: left() < before, STANDSTILL, message(now))
            now = left()


@dataclass(frozen=True, slots=True)
class Scene(Place):
    """Where the outbox is and where the workers keep their record; both as libpq addresses."""

    world: str
    record: str
    lease_seconds: float

    def set_up(self) -> None:
        """Create all tables, empty."""
        metadata = MetaData()
        make_outbox_table(metadata)
        make_dlq_table(metadata)
        self.change_tables(metadata, "drop_all", "create_all")
        self.execute(_BUSINESS)
        self.execute(_HANDLED, self.record)

    def tear_down(self) -> None:
        """Drop all tables."""
        self.end_sessions()
        self.execute("drop table orders, versions, effects, leases, outbox, outbox_dlq; drop function keep_lease()")
        self.execute("drop table handled", self.record)

    def left(self) -> int:
        """Messages that are not finished."""
        return int(self.ask("select count(*) from outbox")[0][0])

    async def is_finished(self) -> None:
        """Wait until nothing is left, as long as the workers get on with it."""
        columns = "id, queue, key, now() - next_attempt_at as due, now() - acquired_at as leased, deliveries_count"
        oldest = f"select {columns} from outbox order by id limit 5"
        await self.gets_on(
            self.left, lambda left: f"the workers get on with {left} messages, such as {self.ask(oldest)}"
        )

    def runs(self) -> list[Run]:
        """Every run of a handler, in the order of their beginning."""
        with psycopg.connect(self.record, row_factory=class_row(Run)) as connection:
            return connection.execute(
                "select message_id, delivery, pid, key, version, acquired_at, started, ended, outcome"
                " from handled order by seq"
            ).fetchall()

    def account(self, heard: Set[UUID] | None = None) -> Account:
        """What became of everything that was committed; of all leases, or of the claims whose answer was `heard`."""
        with psycopg.connect(self.world, row_factory=class_row(LeaseChange)) as connection:
            leases = connection.execute(
                "select id, key, old_token, old_at, new_token, new_at, at from leases order by seq"
            ).fetchall()
        return account(
            committed={row[0] for row in self.ask("select message_id from orders")},
            left={row[0] for row in self.ask("select message_id from outbox")},
            dead=[row[0] for row in self.ask("select message_id from outbox_dlq")],
            effects=dict(self.ask("select message_id, times from effects")),
            with_effects={row[0] for row in self.ask(f"select message_id from orders where queue = '{EFFECTS}'")},
            runs=self.runs(),
            leases=leases if heard is None else [held(change, heard) for change in leases],
            lease_seconds=self.lease_seconds,
        )
