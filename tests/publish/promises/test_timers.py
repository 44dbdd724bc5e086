"""Timers that are published again, and timers that are taken back."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.envelope import Envelope, TimerConflict
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from faststream_outbox.publish import cancel_timer, publish
from tests.cases import case
from tests.publish.conftest import Rows

NOON = datetime(2031, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def timer(body: bytes = b"{}", *, timer_id: str | None = "t", queue: str = "orders", **fields: Any) -> Envelope:
    return Envelope(queue=queue, body=body, timer_id=timer_id, **fields)


class Timers:
    """Calls that are committed."""

    def __init__(self, engine: AsyncEngine, table: Table) -> None:
        self.engine, self.table = engine, table

    async def put(self, *envelopes: Envelope) -> Sequence[int | None]:
        async with self.engine.begin() as connection:
            return await publish(connection, self.table, *envelopes)

    async def cancel(self) -> bool:
        async with self.engine.begin() as connection:
            return await cancel_timer(connection, self.table, queue="orders", timer_id="t")

    async def execute(self, sql: str) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(text(sql))


@pytest.fixture
def timers(engine: AsyncEngine, table: Table) -> Timers:
    return Timers(engine, table)


LEASE = "update outbox set acquired_token = gen_random_uuid(), acquired_at = now(), deliveries_count = 3"
"""Everything, as a worker would."""
every_conflict = pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])


@pytest.mark.parametrize(
    ("conflict", "due"),
    [("ignore", NOON - HOUR), ("ignore", NOON + HOUR), ("extend", NOON - HOUR), ("extend", NOON)],
)
async def test_ignoring_and_extending_to_an_earlier_time_keep_everything(
    timers: Timers, rows: Rows, conflict: Any, due: datetime
) -> None:
    ids = await timers.put(timer(b"first", activate_at=NOON, headers={"n": 1}, key="a", priority=1))
    before = rows()
    again = timer(b"second", activate_at=due, key="b", timer_conflict=conflict)
    assert await timers.put(again) == ([None] if conflict == "ignore" else ids)
    assert rows() == before


async def test_same_timer_of_another_queue_is_another_timer(timers: Timers, rows: Rows) -> None:
    ids = await timers.put(timer(), timer(queue="other"))
    assert None not in ids
    assert [row["queue"] for row in rows()] == ["orders", "other"]


@pytest.mark.parametrize(
    ("conflict", "due"), [("replace", NOON - HOUR), ("replace", NOON + HOUR), ("extend", NOON + HOUR)]
)
async def test_replacing_and_extending_to_a_later_time_change_everything_but_the_id(
    timers: Timers, rows: Rows, conflict: TimerConflict, due: datetime
) -> None:
    ids = await timers.put(timer(b"first", activate_at=NOON, headers={"n": 1}, key="a", priority=1))
    await timers.execute(
        "update outbox set attempts_count = 2, deliveries_count = 3, first_attempt_at = now(),"
        " last_attempt_at = now(), created_at = now() - interval '1 day'"
    )
    (before,) = rows()
    changed: dict[str, Any] = {"headers": {"n": 2}, "key": "b", "priority": 2, "message_id": uuid4()}
    assert await timers.put(timer(b"second", activate_at=due, timer_conflict=conflict, **changed)) == ids
    (row,) = rows()
    assert row["created_at"] > before["created_at"]
    changed |= {"payload": b"second", "created_at": row["created_at"], "next_attempt_at": due}
    begun_anew = {"attempts_count": 0, "deliveries_count": 0, "first_attempt_at": None, "last_attempt_at": None}
    assert row == before | changed | begun_anew


@every_conflict
async def test_free_timer_is_inserted_whatever_the_conflict(timers: Timers, rows: Rows, conflict: Any) -> None:
    (id_,) = await timers.put(timer(b"first", activate_at=NOON, timer_conflict=conflict))
    (row,) = rows()
    assert (row["id"], row["timer_id"], bytes(row["payload"]), row["next_attempt_at"]) == (id_, "t", b"first", NOON)


@every_conflict
async def test_leased_timer_is_neither_touched_nor_cancelled(timers: Timers, rows: Rows, conflict: Any) -> None:
    await timers.put(timer(b"first", activate_at=NOON))
    await timers.execute(LEASE)
    before = rows()
    assert await timers.put(timer(b"second", activate_at=NOON + HOUR, timer_conflict=conflict)) == [None]
    assert await timers.cancel() is False
    assert rows() == before


async def test_ids_of_a_mixed_call_come_in_its_order(timers: Timers, rows: Rows) -> None:
    taken = await timers.put(timer(timer_id="taken"), timer(timer_id="later"), timer(timer_id="new"))
    ids = await timers.put(
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


async def test_same_timer_twice_in_a_call_is_taken_once(timers: Timers, rows: Rows) -> None:
    first, second = await timers.put(timer(b"first"), timer(b"second"))
    assert second is None
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [(first, b"first")]


async def test_call_that_would_change_a_timer_twice_is_refused_and_not_sent(
    engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    conflicts: list[Any] = ["ignore", "extend", "replace"]
    async with engine.begin() as connection:
        await connection.execute(text("insert into outbox (queue, payload) values ('sibling', '')"))
        for pair in set(product(conflicts, repeat=2)) - {("ignore", "ignore")}:
            with case(pair), pytest.raises(InvalidMessage, match="twice in one call"):
                await publish(connection, table, *(timer(timer_conflict=conflict) for conflict in pair))
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


async def test_cancelling_deletes_this_timer_only(timers: Timers, rows: Rows) -> None:
    await timers.put(timer(), timer(queue="other"), timer(timer_id="u"), timer(timer_id=None))
    assert await timers.cancel() is True
    assert [(row["queue"], row["timer_id"]) for row in rows()] == [("other", "t"), ("orders", "u"), ("orders", None)]


async def test_cancelling_is_undone_by_a_rollback(timers: Timers, rows: Rows) -> None:
    await timers.put(timer())
    async with timers.engine.connect() as connection:
        assert await cancel_timer(connection, timers.table, queue="orders", timer_id="t") is True
        await connection.rollback()
    assert len(rows()) == 1


async def test_cancelled_timer_can_be_set_again(timers: Timers, rows: Rows) -> None:
    await timers.put(timer(b"first"))
    async with timers.engine.begin() as connection:
        await cancel_timer(connection, timers.table, queue="orders", timer_id="t")
        (id_,) = await publish(connection, timers.table, timer(b"second"))
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [(id_, b"second")]


IMPOSSIBLE = [("", "t"), ("orders", ""), ("a\x00", "t"), ("orders", "a\x00"), ("orders", "x" * 256), ("$paused", "t")]


async def test_cancelling_an_impossible_timer_sends_no_sql(
    engine: AsyncEngine, table: Table, statements: list[str]
) -> None:
    async with engine.begin() as connection:
        for queue, timer_id in IMPOSSIBLE:
            with case((queue, timer_id)), pytest.raises(InvalidMessage):
                await cancel_timer(connection, table, queue=queue, timer_id=timer_id)
        with pytest.raises(InvalidMessageType):
            await cancel_timer(connection, table, queue="orders", timer_id=5)  # type: ignore[arg-type]
    assert statements == []
