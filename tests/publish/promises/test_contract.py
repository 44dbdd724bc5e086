"""What publishing promises, through each kind of session and connection."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from faststream_outbox._internal.envelope import Envelope
from tests.publish.conftest import Rows
from tests.publish.ways import Way, message

LATER = datetime(2035, 5, 5, 5, 5, 5, 555555, tzinfo=UTC)


async def test_row_appears_with_the_commit_and_not_before(any_way: Way, rows: Rows) -> None:
    await any_way.begin()
    (id_,) = await any_way.publish(message(b"paid"))
    assert rows() == []
    await any_way.commit()
    assert [(row["id"], row["queue"], bytes(row["payload"])) for row in rows()] == [(id_, "orders", b"paid")]


async def test_rollback_leaves_nothing(way: Way, rows: Rows) -> None:
    await way.begin()
    await way.publish(message())
    await way.publish(message(), message(timer_id="t"))
    await way.rollback()
    assert rows() == []


async def test_rolled_back_savepoint_takes_its_messages_along(way: Way, rows: Rows) -> None:
    await way.begin()
    await way.publish(message(b"before"))
    await way.execute("savepoint s")
    await way.publish(message(b"inside"), message(b"inside too"))
    await way.execute("rollback to savepoint s")
    await way.publish(message(b"after"))
    await way.commit()
    assert [bytes(row["payload"]) for row in rows()] == [b"before", b"after"]


async def test_second_transaction_publishes_like_the_first(way: Way, rows: Rows) -> None:
    for body in (b"first", b"second"):
        await way.begin()
        await way.publish(message(body))
        await way.commit()
    assert [bytes(row["payload"]) for row in rows()] == [b"first", b"second"]


async def test_ids_of_a_thousand_messages_come_in_their_order(way: Way, rows: Rows) -> None:
    bodies = [b"%d" % number for number in range(1000)]
    await way.begin()
    ids = await way.publish(*(message(body) for body in bodies))
    await way.commit()
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == list(zip(ids, bodies, strict=True))


def _full(**fields: Any) -> Envelope:
    full = {
        "queue": "orders",
        "body": bytes(range(256)),
        "headers": {"naïve": ["☃", None, {"deep": 1.5}], 'quote"\\': "it's %s :name {x}"},
        "key": "customer-'17' \\ %d ☃",
        "priority": 9,
        "activate_at": datetime(2031, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "message_id": uuid4(),
    }
    return Envelope(**(full | fields))


@pytest.mark.parametrize(
    "envelopes",
    [
        [_full()],
        [_full(), message(b""), _full(queue="other", key="k2", priority=-7, activate_at=LATER)],
        [_full(timer_id="t1"), message(b""), _full(timer_id="t2", key=None)],
    ],
    ids=["one message", "several", "with timers"],
)
async def test_every_message_of_a_call_has_its_own_fields(way: Way, rows: Rows, envelopes: list[Envelope]) -> None:
    await way.begin()
    ids = await way.publish(*envelopes)
    await way.commit()
    stored = {row["id"]: row for row in rows()}
    for id_, sent in zip(ids, envelopes, strict=True):
        row = stored.pop(id_)
        for name in ("queue", "headers", "key", "priority", "timer_id"):
            assert row[name] == getattr(sent, name), name
        assert bytes(row["payload"]) == sent.body
        assert row["next_attempt_at"] == (sent.activate_at or row["created_at"])
        assert row["message_id"] == sent.message_id or (sent.message_id is None and isinstance(row["message_id"], UUID))
        assert (row["attempts_count"], row["deliveries_count"], row["acquired_token"]) == (0, 0, None)
    assert stored == {}


async def test_delay_counts_from_the_servers_clock(way: Way, rows: Rows) -> None:
    delay = timedelta(hours=1, milliseconds=1)
    await way.begin()
    await way.publish(message(activate_in=delay))
    await way.publish(message(activate_in=delay), message(activate_in=delay))
    await way.publish(message(activate_in=delay, timer_id="t"))
    await way.commit()
    # created_at is the server's time of the statement
    assert [row["next_attempt_at"] - row["created_at"] for row in rows()] == [delay] * 4


async def test_taken_timer_is_left_alone_and_has_no_id(any_way: Way, rows: Rows) -> None:
    await any_way.begin()
    (first,) = await any_way.publish(message(b"first", timer_id="t"))
    again = await any_way.publish(message(b"x"), message(b"second", timer_id="t"), message(b"third", timer_id="u"))
    await any_way.commit()
    assert again[1] is None
    assert [(row["id"], bytes(row["payload"])) for row in rows()] == [
        (first, b"first"),
        *sorted([(again[0], b"x"), (again[2], b"third")]),
    ]


async def test_timer_can_be_cancelled_once(way: Way, rows: Rows) -> None:
    await way.begin()
    await way.publish(message(timer_id="t"), message(timer_id="u"))
    await way.commit()
    await way.begin()
    assert await way.cancel("orders", "t") is True
    assert await way.cancel("orders", "t") is False
    assert len(rows()) == 2
    await way.commit()
    assert [row["timer_id"] for row in rows()] == ["u"]


async def test_publishing_nothing_begins_nothing(any_way: Way, rows: Rows) -> None:
    assert await any_way.publish() == []
    session = any_way.session
    if hasattr(session, "in_transaction"):
        assert not session.in_transaction()
    elif hasattr(session, "is_in_transaction"):
        assert not session.is_in_transaction()
    else:
        # the same number means idle in psycopg and in psycopg2
        assert int(session.info.transaction_status) == 0
