"""Timers that are published again, and timers that are taken back."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.envelope import Envelope, TimerConflict
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from faststream_outbox.publish import cancel_timer, publish
from tests.publish.conftest import Rows

NOON = datetime(2031, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def timer(body: bytes = b"{}", *, timer_id: str | None = "t", queue: str = "orders", **fields: Any) -> Envelope:
    return Envelope(queue=queue, body=body, timer_id=timer_id, **fields)


async def put(engine: AsyncEngine, table: Table, *envelopes: Envelope) -> Sequence[int | None]:
    async with engine.begin() as connection:
        return await publish(connection, table, *envelopes)


async def lease(engine: AsyncEngine) -> UUID:
    """Lease everything, as a worker would."""
    token = uuid4()
    async with engine.begin() as connection:
        await connection.execute(
            text("update outbox set acquired_token = :token, acquired_at = now(), deliveries_count = 3"),
            {"token": token},
        )
    return token


async def test_ignored_timer_keeps_everything(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer(b"first", activate_at=NOON, headers={"n": 1}, key="a", priority=1))
    before = rows()
    assert await put(engine, table, timer(b"second", activate_at=NOON - HOUR, key="b")) == [None]
    assert rows() == before


async def test_same_timer_of_another_queue_is_another_timer(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    ids = await put(engine, table, timer(), timer(queue="other"))
    assert None not in ids
    assert [row["queue"] for row in rows()] == ["orders", "other"]


@pytest.mark.parametrize("due", [NOON - HOUR, NOON], ids=["earlier", "at the same time"])
async def test_extending_never_makes_a_timer_earlier(
    engine: AsyncEngine, table: Table, rows: Rows, due: datetime
) -> None:
    ids = await put(engine, table, timer(b"first", activate_at=NOON, headers={"n": 1}, key="a"))
    before = rows()
    assert await put(engine, table, timer(b"second", activate_at=due, timer_conflict="extend")) == ids
    assert rows() == before


@pytest.mark.parametrize(
    ("conflict", "due"), [("replace", NOON - HOUR), ("replace", NOON + HOUR), ("extend", NOON + HOUR)]
)
async def test_replacing_and_extending_to_a_later_time_change_everything_but_the_id(
    engine: AsyncEngine, table: Table, rows: Rows, conflict: TimerConflict, due: datetime
) -> None:
    ids = await put(engine, table, timer(b"first", activate_at=NOON, headers={"n": 1}, key="a", priority=1))
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "update outbox set attempts_count = 2, deliveries_count = 3, first_attempt_at = now(),"
                " last_attempt_at = now(), created_at = now() - interval '1 day'"
            )
        )
    (before,) = rows()
    message_id = uuid4()
    replacement = timer(
        b"second",
        activate_at=due,
        headers={"n": 2},
        key="b",
        priority=2,
        message_id=message_id,
        timer_conflict=conflict,
    )
    assert await put(engine, table, replacement) == ids
    (row,) = rows()
    assert row["created_at"] > before["created_at"]
    changed = {
        "payload": b"second",
        "headers": {"n": 2},
        "created_at": row["created_at"],
        "next_attempt_at": due,
        "key": "b",
        "priority": 2,
        "message_id": message_id,
        "attempts_count": 0,
        "deliveries_count": 0,
        "first_attempt_at": None,
        "last_attempt_at": None,
    }
    assert row == before | changed


@pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])
async def test_free_timer_is_inserted_whatever_the_conflict(
    conflict: Any, engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    (id_,) = await put(engine, table, timer(b"first", activate_at=NOON, timer_conflict=conflict))
    (row,) = rows()
    assert (row["id"], row["timer_id"], bytes(row["payload"]), row["next_attempt_at"]) == (id_, "t", b"first", NOON)


@pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])
async def test_leased_timer_is_not_touched(conflict: Any, engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer(b"first", activate_at=NOON))
    await lease(engine)
    before = rows()
    again = timer(b"second", activate_at=NOON + HOUR, timer_conflict=conflict)
    assert await put(engine, table, again) == [None]
    assert rows() == before


async def test_ids_of_a_mixed_call_come_in_its_order(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    taken = await put(engine, table, timer(timer_id="taken"), timer(timer_id="later"), timer(timer_id="new"))
    ids = await put(
        engine,
        table,
        timer(b"0", timer_id="new", timer_conflict="replace"),
        timer(b"1", timer_id=None),
        timer(b"2", timer_id="taken"),
        timer(b"3", timer_id="fresh"),
        timer(b"4", timer_id=None),
        timer(b"5", timer_id="later", timer_conflict="extend", activate_at=NOON),
        timer(b"6", timer_id=None),
    )
    stored = {row["id"]: bytes(row["payload"]) for row in rows()}
    assert [None if id_ is None else stored[id_] for id_ in ids] == [b"0", b"1", None, b"3", b"4", b"5", b"6"]
    assert (ids[0], ids[5]) == (taken[2], taken[1])


async def test_same_timer_twice_in_a_call_is_taken_once(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    first, second = await put(engine, table, timer(b"first"), timer(b"second"))
    assert second is None
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [(first, b"first")]


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in product(["ignore", "extend", "replace"], repeat=2) if pair != ("ignore", "ignore")],
)
async def test_call_that_would_change_a_timer_twice_is_refused_and_not_sent(
    first: Any, second: Any, engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("insert into outbox (queue, payload) values ('sibling', '')"))
        with pytest.raises(InvalidMessage, match="twice in one call"):
            await publish(connection, table, timer(timer_conflict=first), timer(timer_conflict=second))
    assert [row["queue"] for row in rows()] == ["sibling"]


@pytest.mark.parametrize("conflict", ["extend", "replace"])
async def test_timer_of_an_uncommitted_transaction_waits_for_it(
    conflict: Any, engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    async with engine.begin() as connection:
        (id_,) = await publish(connection, table, timer(b"first", activate_at=NOON))
        async with engine.begin() as other:
            await other.execute(text("set local lock_timeout = '100ms'"))
            with pytest.raises(Exception, match="lock timeout"):
                await publish(other, table, timer(b"second", timer_conflict=conflict))
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [(id_, b"first")]


async def test_cancelling_deletes_this_timer_only(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer(), timer(queue="other"), timer(timer_id="u"), timer(timer_id=None))
    async with engine.begin() as connection:
        assert await cancel_timer(connection, table, queue="orders", timer_id="t") is True
    assert [(row["queue"], row["timer_id"]) for row in rows()] == [("other", "t"), ("orders", "u"), ("orders", None)]


async def test_cancelling_is_undone_by_a_rollback(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer())
    async with engine.connect() as connection:
        assert await cancel_timer(connection, table, queue="orders", timer_id="t") is True
        await connection.rollback()
    assert len(rows()) == 1


async def test_leased_timer_is_not_cancelled(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer())
    await lease(engine)
    before = rows()
    async with engine.begin() as connection:
        assert await cancel_timer(connection, table, queue="orders", timer_id="t") is False
    assert rows() == before


async def test_cancelled_timer_can_be_set_again(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    await put(engine, table, timer(b"first"))
    async with engine.begin() as connection:
        await cancel_timer(connection, table, queue="orders", timer_id="t")
        (id_,) = await publish(connection, table, timer(b"second"))
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [(id_, b"second")]


@pytest.mark.parametrize(
    ("queue", "timer_id"),
    [("", "t"), ("orders", ""), ("a\x00", "t"), ("orders", "a\x00"), ("orders", "x" * 256), ("$paused", "t")],
)
async def test_cancelling_an_impossible_timer_sends_no_sql(
    queue: str, timer_id: str, engine: AsyncEngine, table: Table, statements: list[str]
) -> None:
    async with engine.begin() as connection:
        with pytest.raises(InvalidMessage):
            await cancel_timer(connection, table, queue=queue, timer_id=timer_id)
        with pytest.raises(InvalidMessageType):
            await cancel_timer(connection, table, queue="orders", timer_id=5)  # type: ignore[arg-type]
    assert statements == []
