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


VALUES: dict[str, list[Any]] = {
    "queue": [
        *("", "q" * 256, "q" * 1_000_000, "a\x00b", "\x00", "a\ud800", "\udfffa", "$paused"),
        *(None, b"orders", 7, ["orders"]),
    ],
    "body": ["{}", None, {"a": 1}, [1, 2, 3], 5, _released()],
    "headers": [
        *([("a", "b")], "a=b", b"{}", {1: "a"}, {b"a": "a"}, {None: "a"}, {"a\x00": "b"}, {"a\ud800": "b"}),
        *({"a": "b\x00"}, {"a": "\\\x00"}, {"a": [{"b": ["\x00"]}]}, {"a": "\udc00"}, {"a": b"b"}, {"a": {1}}),
        *({"a": object()}, {"a": UUID(int=1)}, {"a": NOW}, {"a": Decimal("1.5")}, {"a": float("nan")}),
        *({"a": float("inf")}, {"a": [[float("-inf")]]}, {"a": 10**5000}, _circle(), {"a": _tower(100_000)}),
    ],
    "key": ["", "k" * 256, "k\x00", "\ud83d", 17, UUID(int=17)],
    "priority": [32768, -32769, 2**70, True, 1.5, "high", None],
    "activate_at": [
        NOW.replace(tzinfo=None),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        *(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)),
        *(date(2030, 1, 1), "2030-01-01T00:00:00Z", 1_900_000_000.0),
    ],
    "activate_in": [timedelta(days=365_001), timedelta.max, 5, "5 minutes"],
    "timer_id": ["", "t" * 256, "t\x00", "\ud800", 5],
    "message_id": [str(uuid4()), uuid4().bytes, 5],
}
BAD: list[dict[str, Any]] = [
    *({name: value} for name, values in VALUES.items() for value in values),
    {"activate_in": timedelta(1), "activate_at": NOW},
    {"timer_conflict": "replace"},
    *({"timer_id": "t", "timer_conflict": unknown} for unknown in ("overwrite", None, ["extend"])),
]


def bad_one(fields: dict[str, Any]) -> Envelope:
    return Envelope(**({"queue": "orders", "body": b"bad"} | fields))


async def test_bad_message_is_refused_and_its_transaction_commits(
    engine: AsyncEngine, table: Table, rows: Rows, statements: list[str]
) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("insert into outbox (queue, payload) values ('sibling', '')"))
        statements.clear()
        for fields in BAD:
            with case(fields):
                with pytest.raises((ValueError, TypeError)) as refused:
                    await publish(session, table, bad_one(fields))
                assert str(refused.value)
                with pytest.raises((ValueError, TypeError)):
                    await publish(session, table, Envelope(queue="orders", body=b"good"), bad_one(fields))
                assert statements == []
    assert [row["queue"] for row in rows()] == ["sibling"]


def test_bad_message_is_refused_by_a_sync_session_before_it_connects() -> None:
    nowhere = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    table = make_outbox_table(MetaData())
    for fields in BAD:
        with case(fields), Session(nowhere) as session:
            with pytest.raises((ValueError, TypeError)):
                publish_sync(session, table, bad_one(fields))
            assert not session.in_transaction()


async def test_call_that_is_too_large_is_refused(
    engine: AsyncEngine, table: Table, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.publish.rows.MAX_BODY_BYTES", 100)
    half = Envelope(queue="orders", body=b"x" * 60)
    # The last are letters of two bytes.
    headers = [Envelope(queue="orders", body=b"", headers={"a": text}) for text in ("x" * 100, "ł" * 60)]
    async with engine.begin() as connection:
        for call in ([half, half], *([one] for one in headers)):
            with pytest.raises(InvalidMessage, match="bytes"):
                await publish(connection, table, *call)
        assert statements == []
        assert await publish(connection, table, half) == [1]


async def test_what_is_no_envelope_is_refused_and_begins_no_transaction(engine: AsyncEngine, table: Table) -> None:
    things: list[Any] = [None, b"{}", {"queue": "orders"}, [Envelope(queue="orders", body=b"")]]
    for thing in (*things, bad_one({"queue": ""})):
        async with AsyncSession(engine) as session:
            with case(thing), pytest.raises((TypeError, OutboxError), match=r"Envelope|empty"):
                await publish(session, table, thing)
            assert not session.in_transaction()
