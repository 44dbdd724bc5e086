"""What PostgreSQL keeps of a message: equal to what was given, whatever `checked` accepts."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row
from sqlalchemy import URL, Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.events.types import Published
from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox.events import Events
from faststream_outbox.publish import publish, publish_sync
from tests.publish.conftest import Rows
from tests.publish.ways import message, plain

STORABLE = st.characters(codec="utf-8", exclude_characters="\x00")
NAMES = st.text(STORABLE, min_size=1, max_size=255).filter(lambda name: name != PAUSED)
TEXTS = st.text(STORABLE, max_size=40)
# jsonb keeps numbers as decimals: floats come back equal within their exact range
NUMBERS = st.integers() | st.floats(-1e15, 1e15, allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
MOMENTS = st.datetimes(timezones=st.timezones()).filter(lambda moment: 2 < moment.year < 9998)
ENVELOPES = st.builds(
    Envelope,
    queue=NAMES,
    body=st.binary(max_size=500),
    headers=st.none() | st.dictionaries(TEXTS, VALUES, max_size=5),
    key=st.none() | NAMES,
    priority=st.integers(-32768, 32767),
    activate_at=st.none() | MOMENTS,
    timer_id=st.none() | NAMES,
    message_id=st.none() | st.uuids(),
)
BOUNDED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
WIDEST = Envelope(
    queue="\U0010ffff" * 255, body=b"", key="\U0010ffff" * 255, timer_id="\U0010ffff" * 255, headers={"\\u0000": "\\"}
)
EARLIEST = Envelope(queue="q", body=b"", activate_at=datetime(2, 1, 1, tzinfo=UTC))
LATEST = Envelope(queue="q", body=b"", activate_at=datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
DEEP = Envelope(queue="q", body=b"", headers={"big": 10**4000, "small": 5e-324, "deep": [[[[[[[[[[]]]]]]]]]]})


def _same(sent: Envelope, row: dict[str, Any]) -> None:
    for name in ("queue", "headers", "key", "priority", "timer_id"):
        assert row[name] == getattr(sent, name), name
    assert bytes(row["payload"]) == sent.body
    if sent.activate_at is not None:
        assert row["due"] == (sent.activate_at - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if sent.message_id is not None:
        assert row["message_id"] == sent.message_id


# the due time in microseconds, because psycopg has no datetime in local time at the ends of the calendar
READ = """
select queue, payload, headers, key, priority, timer_id, message_id,
       (extract(epoch from next_attempt_at - '2000-01-01Z') * 1000000)::bigint as due
from outbox order by id
"""


@pytest.mark.slow
@BOUNDED
@given(sent=ENVELOPES)
@example(sent=WIDEST)
@example(sent=EARLIEST)
@example(sent=LATEST)
@example(sent=DEEP)
def test_what_is_accepted_comes_back_equal(sent: Envelope, database_url: URL, table: Table) -> None:
    with psycopg.connect(plain(database_url), row_factory=dict_row) as connection:
        publish_sync(connection, table, sent)
        (row,) = connection.execute(READ).fetchall()
        _same(sent, row)
        connection.rollback()


@pytest.mark.slow
@BOUNDED
@given(sent=st.lists(ENVELOPES, min_size=2, max_size=6, unique_by=lambda one: (one.queue, one.timer_id or id(one))))
def test_what_is_accepted_together_comes_back_equal(sent: list[Envelope], database_url: URL, table: Table) -> None:
    with psycopg.connect(plain(database_url), row_factory=dict_row) as connection:
        ids = publish_sync(connection, table, *sent)
        assert sorted(ids) == ids or any(one.timer_id for one in sent)
        rows = {row["id"]: row for row in connection.execute(READ.replace("select", "select id,")).fetchall()}
        for id_, one in zip(ids, sent, strict=True):
            _same(one, rows[id_])
        connection.rollback()


async def test_asyncpg_takes_the_extremes(engine: AsyncEngine, table: Table) -> None:
    sent = [WIDEST, EARLIEST, LATEST, DEEP]
    async with engine.begin() as connection:
        for one in sent:
            await publish(connection, table, one)
    async with engine.connect() as connection:
        found = (await connection.execute(text(READ))).mappings().all()
    for one, row in zip(sent, found, strict=True):
        _same(one, dict(row))


async def test_message_ids_are_made_unique(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    async with engine.begin() as connection:
        for count, timers in ((500, []), (1, []), (1, []), (500, [message(timer_id="t")])):
            await publish(connection, table, *([message()] * count), *timers)
    ids = {row["message_id"] for row in rows()}
    assert len(ids) == 1003
    assert all(isinstance(id_, UUID) for id_ in ids)


async def test_delay_is_not_counted_from_the_clients_clock(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    async with engine.begin() as connection:
        # the statement's time, not that of the transaction, which may be long
        began = (await connection.execute(text("select now(), pg_sleep(0.05)"))).one()[0]
        await publish(connection, table, message(activate_in=timedelta(seconds=10)))
    (row,) = rows()
    assert row["next_attempt_at"] - began >= timedelta(seconds=10.05)
    assert row["next_attempt_at"] - row["created_at"] == timedelta(seconds=10)


async def test_extreme_delays_are_stored(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    delays = [timedelta(days=365_000), timedelta(microseconds=1), timedelta(0), timedelta.min]
    async with engine.begin() as connection:
        for delay in delays:
            await publish(connection, table, message(activate_in=delay))
    found = [row["next_attempt_at"] - row["created_at"] for row in rows()]
    assert found == [max(delay, timedelta(0)) for delay in delays]


@pytest.fixture
def told() -> tuple[Events, list[Published]]:
    events, reported = Events(), list[Published]()
    events.subscribe(reported.append, Published)
    return events, reported


async def test_publishing_is_told_once_per_queue(
    engine: AsyncEngine, table: Table, told: tuple[Events, list[Published]]
) -> None:
    events, reported = told
    envelopes = [message(b"123", queue="a"), message(b"1", queue="b"), message(b"12", queue="a")]
    async with engine.begin() as connection:
        await publish(connection, table, *envelopes, events=events)
    found = [(one.queue, one.count, one.size_bytes, one.error) for one in reported]
    assert found == [("a", 2, 5, None), ("b", 1, 1, None)]


def test_failed_publishing_is_told_with_its_error(
    sync_engine: Engine, table: Table, told: tuple[Events, list[Published]]
) -> None:
    events, reported = told
    with sync_engine.connect() as connection:
        connection.execute(text("set transaction read only"))
        with pytest.raises(Exception, match="read-only") as failed:
            publish_sync(connection, table, message(queue="a"), events=events)
    assert [(one.queue, one.count, one.error) for one in reported] == [("a", 1, failed.value)]


async def test_refused_message_is_not_told(engine: AsyncEngine, table: Table) -> None:
    events, reported = Events(), []
    events.subscribe(reported.append)
    async with engine.begin() as connection:
        with pytest.raises(ValueError, match="empty"):
            await publish(connection, table, message(queue=""), events=events)
    assert reported == []
