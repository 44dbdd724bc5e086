"""Timers: messages for later, their names, and taking them back."""

import asyncio
import datetime as dt
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Table

from faststream_outbox import OutboxBroker
from tests.contract.outside import App, Outside
from tests.contract.running import run
from tests.waiting import eventually

TIMERS = """\
import datetime as dt

# Fire 30 seconds from now, deduplicated by timer_id:
await broker.publish(
    {"order_id": 1},
    queue="orders",
    session=session,
    activate_in=dt.timedelta(seconds=30),
    timer_id=f"order-confirm-{order.id}",
)

# Fire at a specific UTC instant:
await broker.publish(
    {"x": 1}, queue="orders", session=session,
    activate_at=dt.datetime(2026, 6, 1, 9, tzinfo=dt.UTC),
)

# Cancel before it fires (no-op if the row is already in flight):
await broker.cancel_timer(queue="orders", timer_id="order-confirm-42", session=session)
"""

SCHEDULING = """\
import datetime as dt


# Fire 30 seconds from now, deduplicated by timer_id:
await broker.publish(
    {"order_id": 1},
    queue="orders",
    session=session,
    activate_in=dt.timedelta(seconds=30),
    timer_id=f"order-confirm-{order.id}",
)

# Fire at a specific UTC instant:
await broker.publish(
    {"x": 1}, queue="orders", session=session,
    activate_at=dt.datetime(2026, 6, 1, 9, tzinfo=dt.UTC),
)
"""

DEDUPLICATION = """\
first = await broker.publish(
    {"order_id": 1}, queue="orders", session=session,
    activate_in=dt.timedelta(seconds=30),
    timer_id="order-confirm-1",
)
assert first is not None

# Re-publish — no row inserted, no NOTIFY emitted, returns None.
second = await broker.publish(
    {"order_id": 1}, queue="orders", session=session,
    activate_in=dt.timedelta(seconds=30),
    timer_id="order-confirm-1",
)
assert second is None
"""

CANCELLATION = """\
deleted = await broker.cancel_timer(
    queue="orders",
    timer_id="order-confirm-42",
    session=session,
)
# True if a row was deleted; False if it didn't exist or was already in flight.
"""

HALF_A_MINUTE = dt.timedelta(seconds=30)
AN_INSTANT = dt.datetime(2026, 6, 1, 9, tzinfo=dt.UTC)
BOTH: dict[str, Any] = {"activate_in": HALF_A_MINUTE, "activate_at": AN_INSTANT}


def is_notify(statement: str) -> bool:
    return "pg_notify" in statement


async def run_here(app: App, snippet: str, order_id: int = 1) -> dict[str, Any]:
    """Run a snippet in the session as it is."""
    names = {"broker": app.broker, "session": app.session, "order": SimpleNamespace(id=order_id), "dt": dt}
    return await run(snippet, names)


async def committed(app: App, snippet: str, order_id: int = 1) -> dict[str, Any]:
    """Run a snippet in a transaction."""
    async with app.session.begin():
        return await run_here(app, snippet, order_id)


async def put_timer(app: App, timer_id: str = "order-confirm-42") -> None:
    async with app.session.begin():
        await app.broker.publish(1, queue="orders", session=app.session, activate_in=HALF_A_MINUTE, timer_id=timer_id)


async def test_activate_in_counts_from_the_servers_clock(app: App) -> None:
    await committed(app, SCHEDULING)
    first, _ = app.rows()
    assert first["next_attempt_at"] - first["created_at"] == HALF_A_MINUTE
    assert first["timer_id"] == "order-confirm-1"


async def test_activate_at_is_the_instant_given(app: App) -> None:
    await committed(app, SCHEDULING)
    assert app.rows()[1]["next_attempt_at"] == AN_INSTANT


async def test_cancelling_takes_back_the_timer_of_that_name(app: App) -> None:
    await committed(app, TIMERS, order_id=42)
    assert [row["timer_id"] for row in app.rows()] == [None]


async def test_cancelling_leaves_timers_of_other_names(app: App) -> None:
    await committed(app, TIMERS, order_id=1)
    assert [row["timer_id"] for row in app.rows()] == ["order-confirm-1", None]


async def test_publish_gives_the_id_of_the_row(app: App) -> None:
    async with app.session.begin():
        number = await app.broker.publish(1, queue="orders", session=app.session)
    assert number == app.row()["id"]


async def test_publishing_a_timer_again_inserts_nothing_and_gives_none(app: App) -> None:
    known = await committed(app, DEDUPLICATION)
    assert app.row()["id"] == known["first"]


async def test_the_same_name_in_another_queue_is_another_timer(app: App) -> None:
    async with app.session.begin():
        for queue in ("orders", "invoices"):
            await app.broker.publish(1, queue=queue, session=app.session, activate_in=HALF_A_MINUTE, timer_id="same")
    assert [row["queue"] for row in app.rows()] == ["orders", "invoices"]


async def test_both_activations_are_refused_and_no_sql_is_sent(app: App, statements: list[str]) -> None:
    with pytest.raises(ValueError, match="activate_at"):
        await app.broker.publish(1, queue="orders", session=app.session, **BOTH)
    assert not statements


async def test_both_activations_of_a_batch_are_refused(app: App) -> None:
    with pytest.raises(ValueError, match="activate_at"):
        await app.broker.publish_batch(1, queue="orders", session=app.session, **BOTH)


async def test_naive_activate_at_is_refused_and_no_sql_is_sent(app: App, statements: list[str]) -> None:
    with pytest.raises(ValueError, match=r"(?i)time ?zone|aware|naive"):
        await app.broker.publish(1, queue="orders", session=app.session, activate_at=AN_INSTANT.replace(tzinfo=None))
    assert not statements


async def test_a_batch_is_scheduled_identically(app: App) -> None:
    async with app.session.begin():
        await app.broker.publish_batch(1, 2, 3, queue="orders", session=app.session, activate_in=HALF_A_MINUTE)
    rows = app.rows()
    assert len({row["next_attempt_at"] for row in rows}) == 1
    assert rows[0]["next_attempt_at"] - rows[0]["created_at"] == HALF_A_MINUTE


async def test_a_batch_takes_an_instant(app: App) -> None:
    async with app.session.begin():
        await app.broker.publish_batch(1, 2, queue="orders", session=app.session, activate_at=AN_INSTANT)
    assert [row["next_attempt_at"] for row in app.rows()] == [AN_INSTANT, AN_INSTANT]


def test_publish_batch_has_no_timer_id() -> None:
    assert "timer_id" not in inspect.signature(OutboxBroker.publish_batch).parameters


def test_timer_id_is_a_column_of_255_characters(table: Table) -> None:
    assert table.c.timer_id.type.length == 255  # type: ignore[attr-defined]


async def test_too_long_timer_id_is_refused_and_no_sql_is_sent(app: App, statements: list[str]) -> None:
    with pytest.raises(ValueError, match="timer_id"):
        await app.broker.publish(1, queue="orders", session=app.session, timer_id="x" * 256)
    assert not statements


def test_timers_have_a_partial_unique_index(table: Table, outside: Outside) -> None:
    (index,) = outside.sql("select indexdef from pg_indexes where indexname = 'outbox_timer_id_uq'")
    assert "UNIQUE" in index["indexdef"]
    assert "(queue, timer_id) WHERE (timer_id IS NOT NULL)" in index["indexdef"]


@pytest.fixture
def notifying(app: App) -> App:
    """With a broker that sends NOTIFY in the caller's transaction."""
    app.broker = app.another(notify="in_transaction")
    return app


async def test_a_due_message_notifies(notifying: App, statements: list[str]) -> None:
    async with notifying.session.begin():
        await notifying.broker.publish(1, queue="orders", session=notifying.session)
    assert len([sent for sent in statements if is_notify(sent)]) == 1


@pytest.mark.parametrize(
    "when",
    [{"activate_in": HALF_A_MINUTE}, {"activate_at": dt.datetime(2999, 1, 1, tzinfo=dt.UTC)}],
    ids=["activate_in", "activate_at"],
)
async def test_a_message_for_later_does_not_notify(notifying: App, statements: list[str], when: dict[str, Any]) -> None:
    async with notifying.session.begin():
        await notifying.broker.publish(1, queue="orders", session=notifying.session, **when)
    assert not [sent for sent in statements if is_notify(sent)]


async def test_a_taken_timer_does_not_notify(notifying: App, statements: list[str]) -> None:
    broker, session = notifying.broker, notifying.session
    async with session.begin():
        assert await broker.publish(1, queue="orders", session=session, timer_id="now") is not None
        statements.clear()
        assert await broker.publish(1, queue="orders", session=session, timer_id="now") is None
    assert not [sent for sent in statements if is_notify(sent)]


async def test_cancel_timer_says_true_when_it_deleted(app: App) -> None:
    await put_timer(app)
    assert (await committed(app, CANCELLATION))["deleted"] is True
    assert app.is_empty()


async def test_cancel_timer_says_false_when_there_is_none(app: App) -> None:
    assert (await committed(app, CANCELLATION))["deleted"] is False


async def test_cancel_timer_says_false_and_touches_nothing_when_it_is_leased(app: App) -> None:
    await put_timer(app)
    token = app.lease()
    assert (await committed(app, CANCELLATION))["deleted"] is False
    assert app.row()["acquired_token"] == token


async def test_cancel_timer_is_part_of_the_callers_transaction(app: App) -> None:
    await put_timer(app)
    await app.session.begin()
    await run_here(app, CANCELLATION)
    await app.session.rollback()
    assert app.row()["timer_id"] == "order-confirm-42"


async def test_delivery_completes_when_the_timer_is_cancelled_too_late(app: App) -> None:
    started, cancelled, handled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.broker.subscriber("orders")
    async def handle(body: int) -> None:
        started.set()
        await cancelled.wait()
        handled.set()

    await app.broker.start()
    async with app.session.begin():
        await app.broker.publish(1, queue="orders", session=app.session, timer_id="order-confirm-42")
    async with asyncio.timeout(30):
        await started.wait()
    known = await committed(app, CANCELLATION)
    cancelled.set()
    await eventually(app.is_empty)
    assert (known["deleted"], handled.is_set()) == (False, True)


async def test_a_timer_fires_on_time_and_not_a_poll_later(app: App) -> None:
    loop, fired = asyncio.get_running_loop(), asyncio.Event()

    @app.broker.subscriber("orders", min_fetch_interval=50.0, max_fetch_interval=50.0)
    async def handle(body: int) -> None:
        fired.set()

    await app.broker.start()
    published = loop.time()
    async with app.session.begin():
        await app.broker.publish(1, queue="orders", session=app.session, activate_in=dt.timedelta(seconds=0.5))
    async with asyncio.timeout(30):
        await fired.wait()
    assert loop.time() - published >= 0.5


async def test_a_timer_that_nobody_is_told_of_fires_within_max_fetch_interval(app: App) -> None:
    app.broker = app.another(notify="off", listen=False, watch=False)
    fired = app.collects(min_fetch_interval=0.1, max_fetch_interval=0.2)
    await app.broker.start()
    app.sql("insert into outbox (queue, payload, next_attempt_at) values ('orders', '1', now() + interval '0.3 s')")
    await eventually(lambda: fired)
