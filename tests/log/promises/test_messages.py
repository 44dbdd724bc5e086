"""Any JSON value or bytes is a payload, any text an event_id; what cannot be stored is refused before SQL is sent."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from faststream_outbox.log import DuplicateMessage, Outbox, OutboxMessage
from tests.cases import case
from tests.log.opened import Collector, delivered, drain

URI = "kafka://orders"
KNOWN = UUID("5f0c2d1e-8a4b-4c3d-9e6f-0123456789ab")


async def _round_trip(outbox: Outbox, message: OutboxMessage) -> OutboxMessage:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, message)
    collector = Collector()
    await drain(outbox, collector)
    (read,) = collector.messages
    return read


PAYLOADS: list[Any] = [
    {"type": "OrderCreated"},
    {},
    [],
    [1, {"a": [None]}],
    "text",
    "",
    0,
    -1.5,
    1.0,
    10**40,
    True,
    None,
    "NUL \x00 inside",
    {"NUL \x00 key": "\x00"},
    "\\u0000",
    "😀 é 漢",
    "'; drop table outbox; --",
    "%s %(a)s :b {c} $1",
    b"",
    b"\x00\xff bytes",
    b'{"not": "parsed"}',
]


@pytest.mark.slow
async def test_a_payload_comes_back_as_it_was(outbox: Outbox) -> None:
    for payload in PAYLOADS:
        with case(payload):
            read = (await _round_trip(outbox, OutboxMessage(URI, payload))).payload
            assert (read, type(read)) == (payload, type(payload))


async def test_keys_of_a_payload_keep_their_order(outbox: Outbox) -> None:
    read = await _round_trip(outbox, OutboxMessage(URI, {"b": 1, "a": 2, "aa": 3}))
    assert list(read.payload) == ["b", "a", "aa"]


async def test_nul_in_metadata_comes_back_as_it_was(outbox: Outbox) -> None:
    metadata = {"note": "a\x00b", "event_id": "id\x00with NUL"}
    assert (await _round_trip(outbox, OutboxMessage(URI, 1, metadata))).metadata == metadata


EVENT_IDS = [
    "abc",
    "",
    "123",
    124,
    "é漢😀",
    "x" * 10_000,
    str(KNOWN),
    UUID(int=7),
    f"{{{UUID(int=8)}}}",
    "a\x00b",
    "no-uuid",
]


@pytest.mark.slow
async def test_any_event_id_is_unique_and_comes_back_as_it_was(outbox: Outbox) -> None:
    for event_id in EVENT_IDS:
        with case(event_id):
            message = OutboxMessage(URI, 1, {"event_id": event_id})
            read = await _round_trip(outbox, message)
            assert read.metadata["event_id"] == (str(event_id) if isinstance(event_id, UUID) else event_id)
            async with outbox.engine.connect() as connection:
                with pytest.raises(DuplicateMessage):
                    await outbox.publish(connection, message)


async def test_messages_without_an_event_id_are_never_duplicates(outbox: Outbox) -> None:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, OutboxMessage(URI, 1), OutboxMessage(URI, 1, {"event_id": None}))
        await outbox.publish(connection, OutboxMessage(URI, 1))
    assert await delivered(outbox) == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 3], ids=["alone", "among others"])
async def test_a_duplicate_leaves_the_transaction_usable(engine: AsyncEngine, outbox: Outbox, count: int) -> None:
    event_id = str(uuid4())
    fresh = [OutboxMessage(URI, "new") for _ in range(count - 1)]
    async with engine.begin() as connection:
        await outbox.publish(connection, OutboxMessage(URI, "first", {"event_id": event_id}))
    async with AsyncSession(engine) as session, session.begin():
        again = OutboxMessage(URI, "again", {"event_id": event_id})
        token = await outbox.publish(session, again, *fresh, on_duplicate="ignore")
        assert len(token.positions) == len(fresh)
        assert (await session.execute(text("select 1"))).scalar_one() == 1
    assert await delivered(outbox) == ["first", *["new"] * len(fresh)]


async def test_an_event_id_twice_in_one_call_is_a_duplicate(outbox: Outbox) -> None:
    async with outbox.engine.connect() as connection:
        with pytest.raises(DuplicateMessage):
            await outbox.publish(connection, *[OutboxMessage(URI, 1, {"event_id": "same"})] * 2)


REFUSED: list[tuple[Any, type[Exception]]] = [
    (OutboxMessage(URI, object()), InvalidMessageType),
    (OutboxMessage(URI, {1, 2}), InvalidMessageType),
    (OutboxMessage(URI, datetime(2026, 1, 1)), InvalidMessageType),  # noqa: DTZ001
    (OutboxMessage(URI, float("nan")), InvalidMessage),
    (OutboxMessage(URI, {"a": float("inf")}), InvalidMessage),
    (OutboxMessage(URI, "half \ud800 a letter"), InvalidMessage),
    (OutboxMessage("", 1), InvalidMessage),
    (OutboxMessage("a\x00b", 1), InvalidMessage),
    (OutboxMessage("half \ud800", 1), InvalidMessage),
    (OutboxMessage("x" * 1025, 1), InvalidMessage),
    (OutboxMessage("é" * 513, 1), InvalidMessage),
    (OutboxMessage(5, 1), InvalidMessageType),  # type: ignore[arg-type]
    (OutboxMessage(URI, 1, [("a", 1)]), InvalidMessageType),  # type: ignore[arg-type]
    (OutboxMessage(URI, 1, {"a": object()}), InvalidMessageType),
    (OutboxMessage(URI, 1, {"event_id": 1.5}), InvalidMessageType),
    (OutboxMessage(URI, 1, {"event_id": ["a"]}), InvalidMessageType),
    ({"uri": URI, "payload": 1}, InvalidMessageType),
]


async def test_what_cannot_be_stored_is_refused_and_the_transaction_goes_on(outbox: Outbox) -> None:
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.publish(session, OutboxMessage(URI, "before"))
        for message, error in REFUSED:
            with case(message), pytest.raises(error):
                await outbox.publish(session, OutboxMessage(URI, "with it"), message)
        await outbox.publish(session, OutboxMessage(URI, "after"))
    assert await delivered(outbox) == ["before", "after"]


async def test_the_time_of_a_message_is_a_time(outbox: Outbox) -> None:
    created_at = (await _round_trip(outbox, OutboxMessage(URI, 1))).created_at
    assert isinstance(created_at, datetime)
    assert created_at.utcoffset() is not None
