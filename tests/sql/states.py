"""Outbox tables in the states that mislead a planner, for the guards of `test_plans`.

`young`: rows but no statistics. `churned`: statistics of an empty table, indexes full of dead entries that
an old snapshot keeps, and a few live rows. `crowded`: half a million rows of many queues, analysed, with every
key's head leased. Each has the same queues, so that the same statements can be asked in all of them. `skewed`: a
million rows of one queue and ten of each of 499 others, for `test_plans_of_overview`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, LiteralString, cast
from uuid import UUID

import psycopg
from sqlalchemy import MetaData, create_engine

from faststream_outbox.schema import Names, make_dlq_table, make_outbox_table
from tests.tables import STAYS

TOKEN = UUID("00000000-0000-4000-8000-00000000beef")
HELD = 1000
CHURN = 50_000
KEYS = 200

_DUE = "now() - interval '1 hour' + n * interval '1 millisecond'"
_LATER = "now() + interval '1 hour' + n * interval '1 second'"
_KEY = f"'k' || lpad((n % {KEYS})::text, 4, '0')"


@dataclass(frozen=True, slots=True)
class State:
    """A table in one of the states, on a connection that is not in a transaction."""

    connection: psycopg.Connection[Any]
    names: Names
    dead_entries: int = 0
    depth: int = 0
    """Messages of each key."""

    def execute(self, statement: str) -> psycopg.Cursor[Any]:
        """Run a statement; `{t}` stands for the table."""
        return self.connection.execute(cast("LiteralString", statement.replace("{t}", self.names.table)))

    def fill(self, count: int, queue: str, **columns: str) -> None:
        """Insert rows of one kind; queue and columns are SQL over the row's number `n`."""
        columns = {"queue": queue, "payload": "'body'", "next_attempt_at": _DUE} | columns
        self.execute(
            f"insert into {{t}} ({', '.join(columns)}) select {', '.join(columns.values())}"
            f" from generate_series(1, {count}) n"
        )

    def hold(self, count: int) -> None:
        """Insert rows that a worker has leased."""
        self.fill(count, "'held'", deliveries_count="1", acquired_token=f"'{TOKEN}'", acquired_at="now()")

    def mix(self, unit: int, depth: int) -> None:
        """Insert some 7.2 units of due and scheduled rows of many queues, and `depth` rows of each key."""
        self.fill(2 * unit, "'orders'")
        self.fill(unit // 10, "'orders'", priority="5")
        self.fill(unit // 10, "'orders'", next_attempt_at=_LATER)
        self.fill(unit, "'timers'", next_attempt_at=_LATER, timer_id="'t' || n")
        self.fill(2 * unit, "'other' || n % 50")
        self.fill(2 * unit, "'other' || n % 50", next_attempt_at=_LATER)
        self.fill(depth * KEYS, "'ledger'", key=_KEY)

    def next_of_keys(self, run: int) -> list[int | None]:
        """For each of the first keys, the id of the message that stands behind so many."""
        nth = f"(array_agg(id order by id))[{run + 1}]"
        rows = self.execute(f"select {nth} from {{t}} where queue = 'ledger' group by key order by key")
        return [row[0] for row in rows.fetchall()[:20]]

    def ids_held(self, count: int) -> list[int]:
        """Ids of leased rows, scattered over the table."""
        rows = self.execute(f"select id from {{t}} where queue = 'held' order by hashint8(id) limit {count}")
        return [row[0] for row in rows.fetchall()]


@contextmanager
def _empty(dsn: str, name: str) -> Iterator[State]:
    metadata = MetaData()
    table, dead = make_outbox_table(metadata, name), make_dlq_table(metadata, f"{name}_dlq")
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    metadata.create_all(engine)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            state = State(connection, Names.of(table, dead))
            state.execute("alter table {t} set (autovacuum_enabled = off)")
            yield state
    finally:
        metadata.drop_all(engine)
        engine.dispose()


@contextmanager
def young(dsn: str) -> Iterator[State]:
    """Rows, and nobody has ever counted them."""
    with _empty(dsn, "young") as state:
        state.hold(HELD)
        state.mix(unit=5_000, depth=100)
        yield replace(state, depth=100)


@contextmanager
def emptied(dsn: str) -> Iterator[State]:
    """Drained and vacuumed to nothing, as an idle outbox is."""
    with _empty(dsn, "emptied") as state:
        state.hold(HELD)
        state.execute("delete from {t}")
        state.execute("vacuum (analyze) {t}")
        yield state


@contextmanager
def churned(dsn: str) -> Iterator[State]:
    """Analysed when it was empty, after a churn whose rows an old snapshot keeps."""
    with ExitStack() as stack:
        state = stack.enter_context(_empty(dsn, "churned"))
        analyst = stack.enter_context(psycopg.connect(dsn, application_name=STAYS))
        analyst.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        analyst.execute("select count(*) from pg_class")
        state.hold(HELD)
        state.mix(unit=5_000, depth=CHURN // 5 // KEYS)
        dead = state.execute("delete from {t}").rowcount
        state.execute("analyze {t}")
        state.hold(HELD)
        state.fill(200, "'orders'", next_attempt_at="now() - interval '1 second'")
        state.fill(50 * KEYS, "'ledger'", key=_KEY, next_attempt_at="now()")
        state.fill(100, "'timers'", timer_id="'t' || n", next_attempt_at=_LATER)
        yield replace(state, dead_entries=dead, depth=50)


@contextmanager
def crowded(dsn: str) -> Iterator[State]:
    """Half a million rows, known to the planner, and every key's head leased."""
    with _empty(dsn, "crowded") as state:
        state.hold(HELD)
        state.mix(unit=50_000, depth=500)
        state.execute(
            "update {t} set acquired_token = gen_random_uuid(), acquired_at = now(), deliveries_count = 1"
            f" where queue = 'ledger' and id <= (select min(id) + {KEYS - 1} from {{t}} where queue = 'ledger')"
        )
        state.execute("analyze {t}")
        yield replace(state, depth=500)


BIG = 1_000_000
SMALL_QUEUES = 499


@contextmanager
def skewed(dsn: str) -> Iterator[State]:
    """One queue that has nearly everything, and many that have next to nothing; dead letters likewise."""
    with _empty(dsn, "skewed") as state:
        state.fill(BIG, "'big'")
        state.fill(10 * SMALL_QUEUES, f"'small' || n % {SMALL_QUEUES}")
        state.fill(20_000, "'big'", next_attempt_at=_LATER, timer_id="'t' || n")
        state.fill(1000, "'big'", key=_KEY)
        letter = "original_id, message_id, queue, payload, created_at, failure_reason"
        state.execute(
            f"insert into {state.names.dead} ({letter}) select n, gen_random_uuid(),"
            f" case when n % 100 = 0 then 'small' || n % {SMALL_QUEUES} else 'big' end, '', now(), 'rejected'"
            " from generate_series(1, 300000) n"
        )
        yield state
