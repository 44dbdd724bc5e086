"""The model of a key does what PostgreSQL does: ways through it, taken for real, lead to the same tables.

A claim is held up between its snapshot and its locks: its statement waits there for a lock of the test's.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import URL, Table

from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.schema import Names
from tests.models.explorer import walk
from tests.models.key_model import KeyModel, Scene, Worker

pytestmark = pytest.mark.slow

WALKS = 12
LENGTH = 150
TTL = 600.0
RUNS = (2, 1)
GATE = 7_100
MODEL = KeyModel(messages=4, runs=RUNS, expires=True, retries=True, loses_answers=True)

Rows = list[tuple[int, UUID | None, bool, bool, bool]]


class Replay:
    """A connection and a thread for each worker, a connection for each publisher, and one that holds gates."""

    def __init__(self, dsn: str, table: Table, stack: ExitStack) -> None:
        def connect(*, autocommit: bool = True) -> psycopg.Connection[Any]:
            return stack.enter_context(psycopg.connect(dsn, autocommit=autocommit))

        self._connect = connect
        self._table = table.name
        self._sql = statements("keys", Names.of(table), "settle")
        self._observer = connect()
        self._publishers: dict[int, psycopg.Connection[Any]] = {}
        self._claimers = [connect(autocommit=False) for _ in RUNS]
        self._settlers = [connect() for _ in RUNS]
        self._threads = stack.enter_context(ThreadPoolExecutor(len(RUNS)))
        # Whatever fails: no thread is left waiting.
        stack.callback(self._one, "select pg_advisory_unlock_all()")
        self._claims: dict[int, Future[list[tuple[Any, ...]]]] = {}
        self._tokens: dict[int, UUID] = {}
        self._server = self._one("select pg_postmaster_start_time()")
        for place in range(len(RUNS)):
            self._gate("lock", place)

    def _one(self, statement: str) -> Any:
        row = self._observer.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]

    def _gate(self, what: str, place: int) -> None:
        self._one(f"select pg_advisory_{what}({GATE + place})")

    def step(self, name: str, before: Scene, after: Scene) -> None:
        """Do for real what the step's name says."""
        who, what = name.split(": ")
        number = next((int(word) for word in (*what.split(), *who.split()) if word.isdigit()), 0)
        if who.startswith("publisher"):
            self._publish(what, number)
        elif who == "time":
            change = "next_attempt_at = now()" if what.endswith("due") else "acquired_at = '2020-01-01Z'"
            self._observer.execute(f"update {self._table} set {change} where id = {number}".encode())
        else:
            place = int(who.split()[1])
            self._work(what, place, before.workers[place], after)

    def _publish(self, what: str, number: int) -> None:
        if what == "draw":
            connection = self._publishers[number] = self._connect(autocommit=False)
            insert = f"insert into {self._table} (queue, key, payload) values ('q', 'k', '') returning id"
            assert connection.execute(insert.encode()).fetchone() == (number,)
        elif what == "commit":
            self._publishers[number].commit()
        else:
            self._publishers[number].rollback()

    def _work(self, what: str, place: int, before: Worker, after: Scene) -> None:
        worker = after.workers[place]
        connection = self._settlers[place]
        match what.split()[0]:
            case "claim":
                self._claim(place, before, worker)
            case "end":
                if what == "end leases":
                    self._end_leases(place, before)
            case "lock" | "give":
                self._lock(place, worker, is_taken=what == "lock")
            case "commit" | "lose":
                self._claimers[place].commit()
                self._gate("lock", place)
            case "ask":
                values = {"queues": ["q"], "keys": ["k"], "firsts": [before.run[0]]}
                rows = connection.execute(self._sql["overtaken"].pyformat, values).fetchall()
                assert bool(rows) == (worker.phase == "releasing")
            case "done" | "retry" | "release" as outcome:
                number = int(what.split()[1])
                lease = {"ids": [number], "tokens": [self._tokens[before.token]]}
                more = {"delays": [3600.0], "attempts": [1], "uncounted": [1]}
                connection.execute(self._sql[f"settle_{outcome}"].pyformat, lease | more)
            case "renew":
                self._renew(connection, before, worker)
            case _:
                assert what.split()[0] in ("horizon", "begin", "drop", "fail", "deadline")

    def _claim(self, place: int, before: Worker, worker: Worker) -> None:
        self._tokens[worker.token] = uuid4()
        values = self._wanted(place, before) | {"token": self._tokens[worker.token]}
        claim = self._sql["claim_keys"].pyformat
        part = "from head h\n    cross join lateral unnest"
        assert part in claim, "the statement has changed"
        # It names the head, and so it is asked after that was found.
        gate = f"(select pg_advisory_xact_lock_shared({GATE + place} + 0 * h.n::int) offset 0) gate"
        text = claim.replace(part, f"from head h cross join lateral {gate} cross join lateral unnest").encode()
        connection = self._claimers[place]
        self._claims[place] = self._threads.submit(lambda: connection.execute(text, values).fetchall())
        is_waiting = f"select count(*) from pg_locks where objid = {GATE + place} and not granted"
        while not self._one(is_waiting):
            assert not self._claims[place].done(), self._claims[place].result()

    def _end_leases(self, place: int, worker: Worker) -> None:
        values = self._wanted(place, worker) | {"token": uuid4()}
        rows = self._claimers[place].execute(self._sql["claim_keys"].pyformat, values).fetchall()
        self._claimers[place].commit()
        assert [row[0] for row in rows] == [None]

    def _wanted(self, place: int, worker: Worker) -> dict[str, Any]:
        key = {"queues": ["q"], "keys": ["k"], "runs": [RUNS[place]], "ttls": [TTL], "held_by_dead": [False]}
        unheard = [self._tokens[worker.unheard]] if worker.unheard else []
        return key | {"nexts": [None], "floors": [worker.floor], "server": self._server, "unheard": unheard}

    def _lock(self, place: int, worker: Worker, *, is_taken: bool) -> None:
        self._gate("unlock", place)
        rows = self._claims.pop(place).result()
        if is_taken:
            assert sorted(row[0] for row in rows) == list(worker.run)
            head = min(rows)
            assert (head[17] and head[0] <= worker.decided) == worker.is_certain
        else:
            assert [row[0] for row in rows] in ([], [None])
            self._claimers[place].rollback()
            self._gate("lock", place)

    def _renew(self, connection: psycopg.Connection[Any], before: Worker, worker: Worker) -> None:
        ids = sorted({*before.run, *before.done} - before.lost)
        tokens = [self._tokens[before.token]] * len(ids)
        values = {"ids": ids, "tokens": tokens, "ttls": [TTL] * len(ids)}
        rows = connection.execute(self._sql["renew"].pyformat, values).fetchall()
        standing = {number for number, _, has_run_out in rows if not has_run_out}
        assert set(ids) - standing == worker.lost - before.lost

    def finds_nothing(self, place: int, worker: Worker) -> bool:
        """Whether a claim would find nobody to take, as the model says; it is rolled back."""
        values = self._wanted(place, worker) | {"token": uuid4()}
        rows = self._claimers[place].execute(self._sql["claim_keys"].pyformat, values).fetchall()
        self._claimers[place].rollback()
        return not rows

    def look(self) -> Rows:
        """The rows as everybody sees them."""
        columns = f"""id, acquired_token, acquired_at is not null and acquired_at >= now() - interval '{TTL} s',
                      next_attempt_at > created_at, next_attempt_at <= now()"""
        return self._observer.execute(f"select {columns} from {self._table} order by id".encode()).fetchall()

    def expected(self, state: Scene) -> Rows:
        """The same of the model."""
        there = [(number, state.at(number)) for number in state.there]
        return [(n, self._tokens[m.token] if m.token else None, m.is_alive, m.is_put_off, m.is_due) for n, m in there]


def may(state: Scene, name: str) -> bool:
    """Time is made to pass by writing to a row, which a claim under way would notice."""
    return not name.startswith("time") or all(w.phase not in ("claiming", "locked") for w in state.workers)


@pytest.fixture
def dsn(database_url: URL) -> str:
    return database_url.set(drivername="postgresql").render_as_string(hide_password=False)


def follow(model: KeyModel, dsn: str, table: Table, seed: int) -> None:
    """Take a way through the model for real, and compare after each step."""
    taken: list[str] = []
    before = model.start()
    with ExitStack() as stack:
        replay = Replay(dsn, table, stack)
        for name, after in walk(model, seed, LENGTH, may, ("roll back",)):
            taken.append(name)
            replay.step(name, before, after)
            assert replay.look() == replay.expected(after), taken
            for place, worker in enumerate(after.workers):
                if worker.phase == "idle" and model._claim(after, place, worker) is None:
                    assert replay.finds_nothing(place, worker), taken
            before = after


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_way_through_the_model_taken_for_real(dsn: str, table: Table, seed: int) -> None:
    follow(MODEL, dsn, table, seed)


def test_a_model_with_a_mistake_is_found_out(dsn: str, table: Table) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        for seed in range(WALKS):
            try:
                follow(replace(MODEL, revives=True), dsn, table, seed)
            except AssertionError:
                return
            owner.execute(f"truncate {table.name} restart identity".encode())
    pytest.fail("no way shows it")
