"""Bad input is refused before any SQL is sent, so that the caller's transaction can still commit."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import MetaData, Table, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import InvalidMessage, OutboxError
from faststream_outbox.publish import publish, publish_sync
from faststream_outbox.schema import make_outbox_table
from tests.cases import case
from tests.publish.conftest import Rows

NOW = datetime.now(UTC)


def _tower(height: int) -> Any:
    tower: Any = "top"
    for _ in range(height):
        tower = [tower]
    return tower


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    return circle


def _released() -> memoryview:
    view = memoryview(b"gone")
    view.release()
    return view


BAD: dict[str, dict[str, Any]] = {
    "queue empty": {"queue": ""},
    "queue too long": {"queue": "q" * 256},
    "queue far too long": {"queue": "q" * 1_000_000},
    "queue with NUL": {"queue": "a\x00b"},
    "queue all NUL": {"queue": "\x00"},
    "queue with a high surrogate": {"queue": "a\ud800"},
    "queue with a low surrogate": {"queue": "\udfffa"},
    "queue reserved": {"queue": "$paused"},
    "queue None": {"queue": None},
    "queue bytes": {"queue": b"orders"},
    "queue number": {"queue": 7},
    "queue list": {"queue": ["orders"]},
    "body text": {"body": "{}"},
    "body None": {"body": None},
    "body object": {"body": {"a": 1}},
    "body list of numbers": {"body": [1, 2, 3]},
    "body number": {"body": 5},
    "body released": {"body": _released()},
    "headers pairs": {"headers": [("a", "b")]},
    "headers text": {"headers": "a=b"},
    "headers bytes": {"headers": b"{}"},
    "header name number": {"headers": {1: "a"}},
    "header name bytes": {"headers": {b"a": "a"}},
    "header name None": {"headers": {None: "a"}},
    "header name with NUL": {"headers": {"a\x00": "b"}},
    "header name with a surrogate": {"headers": {"a\ud800": "b"}},
    "header value with NUL": {"headers": {"a": "b\x00"}},
    "header value with NUL after a backslash": {"headers": {"a": "\\\x00"}},
    "header value with NUL deep inside": {"headers": {"a": [{"b": ["\x00"]}]}},
    "header value with a surrogate": {"headers": {"a": "\udc00"}},
    "header value bytes": {"headers": {"a": b"b"}},
    "header value set": {"headers": {"a": {1}}},
    "header value object": {"headers": {"a": object()}},
    "header value UUID": {"headers": {"a": UUID(int=1)}},
    "header value datetime": {"headers": {"a": NOW}},
    "header value Decimal": {"headers": {"a": Decimal("1.5")}},
    "header value NaN": {"headers": {"a": float("nan")}},
    "header value infinity": {"headers": {"a": float("inf")}},
    "header value negative infinity deep inside": {"headers": {"a": [[float("-inf")]]}},
    "header value of five thousand digits": {"headers": {"a": 10**5000}},
    "headers in a circle": {"headers": _circle()},
    "headers too deep": {"headers": {"a": _tower(100_000)}},
    "key empty": {"key": ""},
    "key too long": {"key": "k" * 256},
    "key with NUL": {"key": "k\x00"},
    "key with a surrogate": {"key": "\ud83d"},
    "key number": {"key": 17},
    "key UUID": {"key": UUID(int=17)},
    "priority too large": {"priority": 32768},
    "priority too small": {"priority": -32769},
    "priority beyond bigint": {"priority": 2**70},
    "priority bool": {"priority": True},
    "priority float": {"priority": 1.5},
    "priority text": {"priority": "high"},
    "priority None": {"priority": None},
    "activate_at naive": {"activate_at": NOW.replace(tzinfo=None)},
    "activate_at after the last year": {"activate_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))},
    "activate_at before the first year": {"activate_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
    "activate_at the last moment": {"activate_at": datetime.max.replace(tzinfo=UTC)},
    "activate_at the first moment": {"activate_at": datetime.min.replace(tzinfo=UTC)},
    "activate_at date": {"activate_at": date(2030, 1, 1)},
    "activate_at text": {"activate_at": "2030-01-01T00:00:00Z"},
    "activate_at number": {"activate_at": 1_900_000_000.0},
    "activate_in too long": {"activate_in": timedelta(days=365_001)},
    "activate_in as long as can be": {"activate_in": timedelta.max},
    "activate_in number": {"activate_in": 5},
    "activate_in text": {"activate_in": "5 minutes"},
    "both due times": {"activate_in": timedelta(1), "activate_at": NOW},
    "timer_id empty": {"timer_id": ""},
    "timer_id too long": {"timer_id": "t" * 256},
    "timer_id with NUL": {"timer_id": "t\x00"},
    "timer_id with a surrogate": {"timer_id": "\ud800"},
    "timer_id number": {"timer_id": 5},
    "timer_conflict unknown": {"timer_id": "t", "timer_conflict": "overwrite"},
    "timer_conflict None": {"timer_id": "t", "timer_conflict": None},
    "timer_conflict list": {"timer_id": "t", "timer_conflict": ["extend"]},
    "timer_conflict without a timer": {"timer_conflict": "replace"},
    "message_id text": {"message_id": str(uuid4())},
    "message_id bytes": {"message_id": uuid4().bytes},
    "message_id number": {"message_id": 5},
}


def test_there_are_more_than_fifty_kinds() -> None:
    assert len(BAD) > 50


def bad_one(kind: str) -> Envelope:
    return Envelope(**({"queue": "orders", "body": b"bad"} | BAD[kind]))


async def test_bad_message_is_refused_and_its_transaction_commits(
    engine: AsyncEngine, table: Table, rows: Rows, statements: list[str]
) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("insert into outbox (queue, payload) values ('sibling', '')"))
        statements.clear()
        for kind in BAD:
            with case(kind):
                with pytest.raises((ValueError, TypeError)) as refused:
                    await publish(session, table, bad_one(kind))
                assert str(refused.value)
                with pytest.raises((ValueError, TypeError)):
                    await publish(session, table, Envelope(queue="orders", body=b"good"), bad_one(kind))
                assert statements == []
    assert [row["queue"] for row in rows()] == ["sibling"]


def test_bad_message_is_refused_by_a_sync_session_before_it_connects() -> None:
    nowhere = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    table = make_outbox_table(MetaData())
    for kind in BAD:
        with case(kind), Session(nowhere) as session:
            with pytest.raises((ValueError, TypeError)):
                publish_sync(session, table, bad_one(kind))
            assert not session.in_transaction()


async def test_refused_message_begins_no_transaction(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        with pytest.raises(OutboxError):
            await publish(session, table, bad_one("queue empty"))
        assert not session.in_transaction()


async def test_call_that_is_too_large_is_refused(
    engine: AsyncEngine, table: Table, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.publish.rows.MAX_BODY_BYTES", 100)
    half = Envelope(queue="orders", body=b"x" * 60)
    async with engine.begin() as connection:
        with pytest.raises(InvalidMessage, match="bytes"):
            await publish(connection, table, half, half)
        with pytest.raises(InvalidMessage, match="bytes"):
            await publish(connection, table, Envelope(queue="orders", body=b"", headers={"a": "x" * 100}))
        with pytest.raises(InvalidMessage, match="bytes"):
            # Letters of two bytes.
            await publish(connection, table, Envelope(queue="orders", body=b"", headers={"a": "ł" * 60}))
        assert statements == []
        assert await publish(connection, table, half) == [1]


@pytest.mark.parametrize("thing", [None, b"{}", {"queue": "orders"}, [Envelope(queue="orders", body=b"")]])
async def test_what_is_no_envelope_is_refused(
    thing: Any, engine: AsyncEngine, table: Table, statements: list[str]
) -> None:
    async with engine.begin() as connection:
        with pytest.raises(TypeError, match="Envelope"):
            await publish(connection, table, thing)
    assert statements == []
