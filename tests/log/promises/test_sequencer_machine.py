"""The sequencer under any interleaving of writers and tickers: a state machine over real connections.

The model knows what was committed before each number was drawn. At every step nothing is in two ticks and
no effect stands before its cause; at the end everything committed is in a tick and no gap is left.
"""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sqlalchemy import URL, Engine, MetaData

from faststream_outbox._internal.log.append import append_sync
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.log import LogTables, OutboxMessage, make_log_tables
from tests.publish.ways import plain

pytestmark = pytest.mark.slow

WRITERS = 3
writers = st.integers(0, WRITERS - 1)
tickers = st.integers(0, 1)
limits = st.sampled_from([1, 2, 10_000])
ranges = st.sampled_from([1, 2, 20_000])
islands = st.sampled_from([1, 1_000])


class Ticker:
    """A connection that ticks, in one go or in steps."""

    def __init__(self, connection: Any, names: LogNames) -> None:
        self._connection = connection
        self._sql = statements("tick", names)
        self.is_open = False

    def lock(self) -> None:
        self.is_open = bool(self._connection.execute(self._sql["lock_head"].pyformat).fetchall())
        if not self.is_open:
            self._connection.rollback()

    def look_for_owners(self) -> None:
        self._connection.execute(self._sql["owners"].pyformat)

    def scan(self, limit: int, ranges: int = 20_000, islands: int = 1_000) -> bool:
        values = {
            "limit": limit,
            "ranges": ranges,
            "islands": islands,
            "sweep": ranges,
            "channel": "nobody",
            "place": "here:",
        }
        row = self._connection.execute(self._sql["tick"].pyformat, values).fetchone()
        assert row is not None
        self._connection.commit()
        self.is_open = False
        return bool(row[5] or row[6])


class Machine(RuleBasedStateMachine):
    """Writers that begin, publish, end; tickers that tick."""

    dsn: str
    tables: LogTables

    def __init__(self) -> None:
        super().__init__()
        self.names = LogNames.of(self.tables)
        places = self.names.places()
        self.watcher: Any = psycopg.connect(self.dsn, autocommit=True)
        for name in ("log", "head_table", "gap_table", "ticks"):
            self.watcher.execute(f"truncate {places[name]} restart identity")
        sql = statements("tick", self.names)
        self.watcher.execute(sql["suspend"].pyformat, {"place": "here:"})
        self.watcher.execute(sql["repair"].pyformat, {"place": "here:", "lows": [], "highs": []})
        self.connections: list[Any] = [psycopg.connect(self.dsn) for _ in range(WRITERS + 2)]
        self.writers = self.connections[:WRITERS]
        self.tickers = [Ticker(connection, self.names) for connection in self.connections[WRITERS:]]
        self.drawn: list[list[tuple[int, int]]] = [[] for _ in range(WRITERS)]
        """Of each writer: (position, depth of savepoints) of what it has published and not committed."""
        self.depth = [0] * WRITERS
        self.committed: list[int] = []
        self.before: dict[int, int] = {}
        """How many were committed when a number was drawn."""

    @rule(who=writers, many=st.integers(1, 3))
    def publish(self, who: int, many: int) -> None:
        done = len(self.committed)
        token = append_sync(self.writers[who], self.tables, [OutboxMessage(f"k{who}", 1)] * many)
        for position in token.positions:
            self.drawn[who].append((position, self.depth[who]))
            self.before[position] = done

    @rule(who=writers)
    def take_an_xid(self, who: int) -> None:
        self.writers[who].execute("select pg_current_xact_id()")

    @rule(who=writers)
    def commit(self, who: int) -> None:
        self.writers[who].commit()
        self.committed += [position for position, _ in self.drawn[who]]
        self.drawn[who], self.depth[who] = [], 0

    @rule(who=writers)
    def roll_back(self, who: int) -> None:
        self.writers[who].rollback()
        self.drawn[who], self.depth[who] = [], 0

    @rule(who=writers)
    def publish_and_commit(self, who: int) -> None:
        self.publish(who, 1)
        self.commit(who)

    @rule(early=writers, owner=writers)
    def end_before_one_that_began_later(self, early: int, owner: int) -> None:
        """What leaves an xid in progress that no ended one exceeds."""
        self.take_an_xid(early)
        self.publish(owner, 1)
        self.publish_and_commit(early)

    @rule(who=writers, limit=limits)
    def cause_and_effect(self, who: int, limit: int) -> None:
        """An effect that is there as soon as its cause is."""
        self.commit(who)
        self.publish_and_commit((who + 1) % WRITERS)
        self.tick(0, limit)

    @rule(who=writers)
    def begin_a_savepoint(self, who: int) -> None:
        self.depth[who] += 1
        self.writers[who].execute(f"savepoint s{self.depth[who]}")

    @rule(who=writers)
    def roll_back_a_savepoint(self, who: int) -> None:
        if self.depth[who]:
            self.writers[who].execute(f"rollback to savepoint s{self.depth[who]}")
            self.drawn[who] = [(position, depth) for position, depth in self.drawn[who] if depth < self.depth[who]]
            self.depth[who] -= 1

    @rule(which=tickers, limit=limits, ranges=ranges, islands=islands, owners=st.booleans())
    def tick(self, which: int, limit: int, ranges: int = 20_000, islands: int = 1_000, *, owners: bool = False) -> None:
        ticker = self.tickers[which]
        if not ticker.is_open:
            ticker.lock()
        if ticker.is_open:
            if owners:
                ticker.look_for_owners()
            ticker.scan(limit, ranges, islands)
        self.check()

    @rule(which=tickers)
    def look_for_owners_long_before_the_scan(self, which: int) -> None:
        if self.tickers[which].is_open:
            self.tickers[which].look_for_owners()

    @rule(which=tickers)
    def tick_twice(self, which: int) -> None:
        """The second one bounds what the first one missed."""
        self.tick(which, 10_000)
        self.tick(which, 10_000)

    @precondition(lambda self: not any(ticker.is_open for ticker in self.tickers))
    @rule(which=tickers)
    def begin_a_tick(self, which: int) -> None:
        self.tickers[which].lock()

    def order(self) -> list[tuple[int, int]]:
        places = self.names.places()
        statement = (
            f"select t.tick, p from {places['ticks']} t, unnest(t.lows, t.highs) r (lo, hi), "
            "generate_series(r.lo, r.hi) p order by 1, 2"
        )
        rows: list[tuple[int, int]] = self.watcher.execute(statement).fetchall()
        return rows

    def gaps(self) -> list[tuple[int, int]]:
        rows: list[tuple[int, int]] = self.watcher.execute(
            f"select lo, hi from {self.names.places()['gaps']}"
        ).fetchall()
        return rows

    def check(self) -> None:
        order = self.order()
        positions = [position for _, position in order]
        assert len(set(positions)) == len(positions), "in two ticks"
        assert set(positions) <= set(self.committed), "not committed"
        place = {position: index for index, position in enumerate(positions)}
        for position in positions:
            causes = self.committed[: self.before[position]]
            overtaken = [cause for cause in causes if place.get(cause, len(positions)) > place[position]]
            assert not overtaken, f"{position} stands before {overtaken}, which were committed before it was drawn"

    def teardown(self) -> None:
        try:
            for who in range(WRITERS):
                self.commit(who)
            for ticker in self.tickers:
                if ticker.is_open:
                    ticker.scan(10_000)
            deadline = time.monotonic() + 30
            # One tick sees, the next bounds, the one after forgets; transactions elsewhere in the cluster delay that.
            for turn in count():
                self.tickers[0].lock()
                while self.tickers[0].scan(7, 3):
                    self.tickers[0].lock()
                if (turn >= 3 and not self.gaps()) or time.monotonic() > deadline:
                    break
            self.check()
            assert sorted(self.committed) == sorted(position for _, position in self.order()), "lost"
            assert self.gaps() == [], "gaps are left"
        finally:
            for connection in (*self.connections, self.watcher):
                connection.close()


@pytest.fixture
def machine(database_url: URL, sync_engine: Engine) -> Iterator[type[Machine]]:
    """The machine on tables of its own."""
    tables = make_log_tables(MetaData(), "machine", "machine_offsets")
    tables.log.metadata.create_all(sync_engine)
    yield type("LogMachine", (Machine,), {"dsn": plain(database_url), "tables": tables})
    tables.log.metadata.drop_all(sync_engine)


def run(machine: type[Machine], examples: int, steps: int, *, explore: bool = False) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            derandomize=not explore,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
            print_blob=True,
        ),
    )


def test_no_interleaving_loses_doubles_or_overtakes(machine: type[Machine]) -> None:
    run(machine, examples=30, steps=30)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_long_interleaving_loses_doubles_or_overtakes(machine: type[Machine]) -> None:
    run(machine, examples=600, steps=40, explore=True)
