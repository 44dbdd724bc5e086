"""Read-only questions about the table: what they show, and that they change nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import URL, Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import InvalidMessage, InvalidOption, UnsupportedSession
from faststream_outbox.overview import fetch_unprocessed
from faststream_outbox.publish import publish, publish_sync
from faststream_outbox.queue import OutboxClient, pause
from tests.publish.ways import message, plain

NOON = datetime(2031, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def put(sync_engine: Engine, table: Table) -> Any:
    """Commits messages."""

    def put(*envelopes: Envelope) -> list[int | None]:
        with sync_engine.begin() as connection:
            return publish_sync(connection, table, *envelopes)

    return put


async def ids(engine: AsyncEngine, table: Table, **options: Any) -> list[int]:
    async with engine.connect() as connection:
        return [found.id for found in await fetch_unprocessed(connection, table, **options)]


async def test_message_is_shown_with_all_its_fields(driver_engine: AsyncEngine, table: Table, put: Any) -> None:
    fields: dict[str, Any] = {"headers": {"a": ["☃", 1]}, "key": "k", "priority": -3, "timer_id": "t"}
    fields["message_id"] = uuid4()
    put(message(b"\x00\xff", activate_at=NOON, **fields))
    async with driver_engine.connect() as connection:
        (found,) = await fetch_unprocessed(connection, table)
    unset = ("first_attempt_at", "last_attempt_at", "acquired_at", "acquired_token")
    fields |= {"queue": "orders", "payload": b"\x00\xff", "next_attempt_at": NOON} | dict.fromkeys(unset)
    fields |= {"attempts_count": 0, "deliveries_count": 0}
    assert {name: getattr(found, name) for name in fields} == fields
    assert abs(found.created_at - datetime.now(UTC)) < timedelta(minutes=5)


async def test_leased_message_is_shown_and_stays_as_it_is(
    driver_engine: AsyncEngine, table: Table, put: Any, sync_engine: Engine
) -> None:
    put(message())
    token = uuid4()
    with sync_engine.begin() as connection:
        connection.execute(text("update outbox set acquired_token = :token, acquired_at = now()"), {"token": token})
        before = connection.execute(table.select()).all()
    async with driver_engine.connect() as connection:
        (found,) = await fetch_unprocessed(connection, table, queue="orders")
    assert isinstance(found.acquired_token, UUID)
    assert found.acquired_token == token
    assert found.acquired_at is not None
    with sync_engine.begin() as connection:
        assert connection.execute(table.select()).all() == before


async def test_queue_is_shown_alone_and_without_one_all_are(engine: AsyncEngine, table: Table, put: Any) -> None:
    one, two, three = put(message(), message(queue="other"), message(key="k"))
    assert await ids(engine, table, queue="orders") == [one, three]
    assert await ids(engine, table, queue="other") == [two]
    assert await ids(engine, table, queue="none") == []
    assert await ids(engine, table) == [one, two, three]


async def test_limit_of_a_queue_keeps_the_first_to_fall_due(engine: AsyncEngine, table: Table, put: Any) -> None:
    late, soon, keyed = put(
        message(activate_at=NOON), message(), message(activate_in=timedelta(hours=1), key="k", priority=0)
    )
    assert await ids(engine, table, queue="orders", limit=1) == [soon]
    assert await ids(engine, table, queue="orders", limit=2) == [soon, keyed]
    assert await ids(engine, table, queue="orders", limit=3) == [late, soon, keyed]


async def test_limit_of_everything_keeps_the_oldest(engine: AsyncEngine, table: Table, put: Any) -> None:
    first, second, _ = put(message(activate_at=NOON), message(queue="other"), message())
    assert await ids(engine, table, limit=2) == [first, second]


async def test_pauses_are_not_shown(engine: AsyncEngine, table: Table, put: Any) -> None:
    (id_,) = put(message())
    await pause(OutboxClient(engine, table), "orders", create=True)
    assert await ids(engine, table) == [id_]


async def test_parked_message_is_shown(driver_engine: AsyncEngine, table: Table, put: Any, sync_engine: Engine) -> None:
    (id_,) = put(message())
    with sync_engine.begin() as connection:
        connection.execute(text("update outbox set next_attempt_at = 'infinity'"))
    async with driver_engine.connect() as connection:
        (found,) = await fetch_unprocessed(connection, table, queue="orders")
        (again,) = await fetch_unprocessed(connection, table)
    assert (found.id, again.id) == (id_, id_)
    assert found.next_attempt_at.year > 9000
    assert found.next_attempt_at.tzinfo is not None


async def test_headers_that_are_no_object_are_shown_as_none(
    engine: AsyncEngine, table: Table, sync_engine: Engine
) -> None:
    with sync_engine.begin() as connection:
        values = "('orders', '', null), ('orders', '', 'null'), ('orders', '', '[]'), ('orders', '', '5')"
        connection.execute(text(f"insert into outbox (queue, payload, headers) values {values}"))
    async with engine.connect() as connection:
        assert [found.headers for found in await fetch_unprocessed(connection, table)] == [{}] * 4


async def test_session_sees_its_own_uncommitted_messages(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        (id_,) = await publish(session, table, message())
        assert [found.id for found in await fetch_unprocessed(session, table)] == [id_]
        assert await ids(engine, table) == []


async def test_raw_connection_can_ask(database_url: URL, table: Table, put: Any) -> None:
    (id_,) = put(message())
    async with await psycopg.AsyncConnection.connect(plain(database_url)) as connection:
        assert [found.id for found in await fetch_unprocessed(connection, table)] == [id_]


async def test_what_cannot_be_is_refused(engine: AsyncEngine, table: Table) -> None:
    for limit in (0, -1):
        with pytest.raises(InvalidOption, match="limit"):
            await ids(engine, table, limit=limit)
    with pytest.raises(InvalidMessage, match="queue"):
        await ids(engine, table, queue="a\x00")
    with pytest.raises(UnsupportedSession):
        await fetch_unprocessed(None, table)
