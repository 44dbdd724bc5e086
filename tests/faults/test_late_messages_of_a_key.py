"""Messages that appear below the one in flight, of the same key, wait for it.

Ids are drawn before commits, and scheduled messages fall due later than they are published: so lower ids of
a key may appear while a higher one runs.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, LiteralString, cast
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Table

from faststream_outbox import events
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.queue import DONE, Claim, Outcome
from faststream_outbox.schema import Names
from tests.faults.child import PLAIN
from tests.queue.rig import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.faults

LATE = 8


@pytest.fixture
def connections(record: str, table: Table) -> Iterator[list[psycopg.Connection[Any]]]:
    opened = [psycopg.connect(record) for _ in range(3)]
    yield opened
    for connection in opened:
        connection.close()


def put(connection: psycopg.Connection[Any]) -> int:
    insert = "insert into outbox (queue, key, payload) values ('plain', 'k', '1') returning id"
    row = connection.execute(insert).fetchone()
    assert row is not None
    return int(row[0])


def claim(connection: psycopg.Connection[Any], table: Table, next_id: int | None = None) -> list[int | None]:
    """A claim of the key as a worker sends it, in a transaction that stays open; None is a key in dispute."""
    statement = statements("keys", Names.of(table))["claim_keys"]
    key = {"queues": [PLAIN], "keys": ["k"], "runs": [1], "ttls": [60.0], "held_by_dead": [False], "nexts": [next_id]}
    values = key | {"floors": [None], "server": None, "token": uuid4(), "unheard": []}
    return [row[0] for row in connection.execute(statement.pyformat, values).fetchall()]


def test_two_claims_at_the_same_moment_do_not_take_one_message_each(
    connections: list[psycopg.Connection[Any]], table: Table
) -> None:
    publisher, first, second = connections
    put(publisher)
    higher = put(first)
    first.commit()
    assert claim(first, table) == [higher]
    publisher.commit()
    assert claim(second, table) == [None]


def overtaken(connection: psycopg.Connection[Any], table: Table, first: int) -> bool:
    """Whether a process that was given this message has to give way."""
    statement = statements("keys", Names.of(table))["overtaken"]
    values = {"queues": [PLAIN], "keys": ["k"], "firsts": [first]}
    return bool(connection.execute(statement.pyformat, values).fetchall())


APPEAR = {
    "published": ("select 1", "select 1"),
    "timers": ("update outbox set next_attempt_at = 'infinity'", "update outbox set next_attempt_at = now()"),
    "replayed": ("update outbox set created_at = now() - interval '1 h'", "select 1"),
}
"""What makes messages of a kind, and what makes them due, of those with lower ids."""


@pytest.mark.parametrize("order", ["1122", "2211", "1212"], ids=["first", "second", "both before they ask"])
@pytest.mark.parametrize("kind", APPEAR)
def test_of_two_claims_that_do_not_see_each_other_the_higher_one_gives_way(
    connections: list[psycopg.Connection[Any]], table: Table, kind: str, order: str
) -> None:
    """Several lower ids appear between two claims of the same moment. Each commits, and then asks."""
    publisher, first, second = connections
    lower = [put(publisher) for _ in range(LATE)]
    make, due = APPEAR[kind]
    publisher.execute(cast("LiteralString", make))
    if kind == "timers":
        publisher.commit()
    higher = put(first)
    first.commit()
    assert claim(first, table) == [higher]
    publisher.execute(cast("LiteralString", f"{due} where id < {higher}" if kind == "timers" else due))
    publisher.commit()
    # Here both have one: neither sees the other's lease.
    assert claim(second, table) == lower[:1]
    answers: dict[int, bool] = {}
    has_ended: set[str] = set()
    for who in order:
        connection, mine = (first, higher) if who == "1" else (second, lower[0])
        if who in has_ended:
            answers[mine] = overtaken(connection, table, mine)
        connection.commit()
        has_ended.add(who)
    assert answers == {higher: True, lower[0]: False}


async def test_messages_that_fall_due_below_the_one_in_hand_wait_for_it(rig: Rig) -> None:
    may_end = asyncio.Event()
    seen: list[bytes] = []

    async def handle(claim: Claim) -> Outcome:
        seen.append(claim.payload)
        if claim.payload == b"first":
            await may_end.wait()
        return DONE

    await rig.put(*["later"] * LATE, key="k", due_in=3600)
    await rig.put("first", key="k")
    await rig.work(handle, min_fetch_interval=0.2)
    await rig.witness.wait(events.Started)
    await rig.work(handle, client=rig.another_client(), min_fetch_interval=0.2)
    await rig.sql("update {t} set next_attempt_at = now() where payload = 'later'")

    async def have_looked() -> bool:
        unleased = "from {t} where acquired_token is null"
        return bool(await rig.one(f"select bool_and(next_attempt_at < now() - interval '1 second') {unleased}"))

    await eventually(have_looked, message="the others are due, and both workers have looked")
    seen_before = list(seen)
    may_end.set()
    await eventually(rig.is_empty)
    assert seen_before == [b"first"]


@pytest.mark.parametrize("is_last_next", [True, False], ids=["still behind our last run", "gone"])
def test_many_lower_ids_do_not_hide_what_another_process_holds(
    connections: list[psycopg.Connection[Any]], table: Table, *, is_last_next: bool
) -> None:
    """We held the key last; then another process took it, and many messages appeared below what it holds."""
    late, other, ours = connections
    lower = [put(late) for _ in range(5 * LATE)]
    first, second, *_ = [put(other) for _ in range(4)]
    other.commit()
    (held,) = claim(other, table)
    other.commit()
    late.commit()
    assert (held, first > lower[-1]) == (first, True)
    # What stood behind our last run: a message that is still there, or one that the other process has taken.
    assert claim(ours, table, next_id=second if is_last_next else first) == []


def test_a_key_that_we_held_last_is_not_read_to_its_end(
    connections: list[psycopg.Connection[Any]], table: Table
) -> None:
    publisher, ours, _ = connections
    first, second, *_ = [put(publisher) for _ in range(4)]
    publisher.commit()
    assert claim(ours, table, next_id=second) == [first]
