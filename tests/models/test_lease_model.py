"""The model of leases does what PostgreSQL does: ways through it, taken for real, lead to the same tables."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import URL, Table

from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.schema import Names
from tests.models.explorer import walk
from tests.models.lease_model import LeaseModel, Queue

pytestmark = pytest.mark.slow

WALKS = 12
LENGTH = 200
SELDOM = ("crash", "stop", "unheard")
TTL = 600.0
BORN = "2020-01-01Z"
"""All are due since then, so that the order of a lane is the order of ids, as in the model."""

Rows = list[tuple[int, UUID | None, bool, bool, bool]]


class Replay:
    """The statements of the workers, one after the other: each is committed before the next one begins."""

    def __init__(self, connection: psycopg.Connection[Any], table: Table, dead: Table) -> None:
        self._connection = connection
        self._table, self._dead = table.name, dead.name
        self._sql = statements("claim", Names.of(table, dead), "settle")
        self._tokens: dict[int, UUID] = {}

    def _ask(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._sql[name].pyformat, values).fetchall()

    def step(self, name: str, before: Queue, after: Queue) -> None:
        """Do for real what the step's name says."""
        who, what = name.split(": ")
        words = what.removesuffix(", unheard").split()
        number = next((int(word) for word in (*words, *who.split()[1:]) if word.isdigit()), 0)
        if what.endswith("commit"):
            insert = (
                f"insert into {self._table} (id, queue, payload, next_attempt_at) values ({number}, 'q', '', '{BORN}')"
            )
            self._connection.execute(insert.encode())
        elif who == "time":
            change = f"next_attempt_at = '{BORN}'" if what.endswith("due") else "acquired_at = '2020-01-01Z'"
            self._connection.execute(f"update {self._table} set {change} where id = {number}".encode())
        elif words[0] in ("claim", "settle", "renew"):
            place = int(who.split()[1])
            self._work(words, number, before.workers[place], after)

    def _work(self, words: list[str], number: int, worker: Any, after: Queue) -> None:
        if words[0] == "claim":
            model_token = after.messages[number - 1].token
            token = uuid4()
            unheard = [self._tokens[worker.unheard]] if worker.unheard else []
            common = {"queues": ["q"], "ttls": [TTL], "token": token, "unheard": unheard}
            if "found" in words:
                rows = self._ask("claim_found", ids=[number], **common)
            else:
                place = {"priorities": [0], "floor_ats": [BORN], "floor_ids": [worker.floor], "quotas": [1]}
                rows = self._ask("claim", **place, **common)
            self._tokens[model_token] = token
            assert [row[0] for row in rows] == [number]
            return
        hold = worker.holds[number - 1]
        lease = {"ids": [number], "tokens": [self._tokens[hold.token]]}
        text = {name: ["x"] for name in ("reasons", "exceptions", "error_types", "error_messages", "tracebacks")}
        match words[-1]:
            case "done":
                self._ask("settle_done", **lease)
            case "retry":
                self._ask("settle_retry", **lease, delays=[3600.0], attempts=[1])
            case "dead":
                self._ask("settle_dead", **lease, attempts=[1], **text)
            case "release":
                self._ask("settle_release", **lease, uncounted=[1])
            case _:
                rows = self._ask("renew", **lease, ttls=[TTL])
                renewed = after.workers[0].holds[number - 1]
                assert renewed is not None
                assert [row[:2] for row in rows] == ([] if renewed.is_lost else [(number, True)])

    def look(self) -> tuple[Rows, list[int]]:
        """The rows, and the ids of dead letters."""
        columns = f"""id, acquired_token, acquired_at is not null and acquired_at >= now() - interval '{TTL} s',
                      next_attempt_at <= now(), attempts_count > 0"""
        rows = self._connection.execute(f"select {columns} from {self._table} order by id".encode()).fetchall()
        dead = self._connection.execute(f"select original_id from {self._dead} order by 1".encode()).fetchall()
        return rows, [number for (number,) in dead]

    def expected(self, state: Queue) -> tuple[Rows, list[int]]:
        """The same of the model."""
        there = [(at, m) for at, m in enumerate(state.messages, start=1) if m.phase == "there"]
        rows = [(at, self._tokens[m.token] if m.token else None, m.is_alive, m.is_due, m.is_tried) for at, m in there]
        return rows, [at for at, m in enumerate(state.messages, start=1) for _ in range(m.dead_letters)]


@pytest.fixture
def connection(database_url: URL) -> Iterator[psycopg.Connection[Any]]:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def follow(model: LeaseModel, replay: Replay, seed: int) -> None:
    """Take a way through the model for real, and compare after each step."""
    taken: list[str] = []
    before = model.start()
    for name, after in walk(model, seed, LENGTH, seldom=SELDOM):
        taken.append(name)
        replay.step(name, before, after)
        assert replay.look() == replay.expected(after), taken
        before = after


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_way_through_the_model_taken_for_real(
    connection: psycopg.Connection[Any], table: Table, dlq_table: Table, seed: int
) -> None:
    follow(LeaseModel(messages=3, workers=3), Replay(connection, table, dlq_table), seed)


def test_a_model_with_a_mistake_is_found_out(
    connection: psycopg.Connection[Any], table: Table, dlq_table: Table
) -> None:
    model = LeaseModel(messages=3, workers=3, renews_without_token=True)
    for seed in range(WALKS):
        try:
            follow(model, Replay(connection, table, dlq_table), seed)
        except AssertionError:
            return
        connection.execute(f"truncate {table.name}, {dlq_table.name}".encode())
    pytest.fail("no way shows it")
