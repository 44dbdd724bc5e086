"""Timers: due times, names that are taken, and taking back, also in a handler's own transaction."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxBroker, OutboxSession
from faststream_outbox.errors import InvalidMessage
from tests.broker.conformance.differences import DUE, differs
from tests.broker.conformance.ways import Seen, Way

HOUR = timedelta(hours=1)
LATER = ConstantRetry(delay_seconds=1000)


@differs(DUE)
async def test_message_waits_until_it_is_due(way: Way, seen: Seen) -> None:
    broker = way.broker()
    handled_at: dict[int, datetime] = {}

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        handled_at[body] = datetime.now(UTC)
        seen(body)

    async with way.running(broker):
        due = datetime.now(UTC) + timedelta(seconds=0.3)
        await way.publish(1, "orders", activate_in=timedelta(seconds=0.3))
        await way.publish(2, "orders", activate_at=datetime.now(UTC) + HOUR)
        await way.publish(3, "orders")
        assert sorted(await seen.first(2)) == [1, 3]
        assert handled_at[1] >= due
        await way.becomes("orders", b"2")


@pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])
@pytest.mark.parametrize("due", [timedelta(minutes=1), timedelta(hours=2)], ids=["earlier", "later"])
async def test_taken_name_is_treated_as_asked(way: Way, conflict: Any, due: timedelta) -> None:
    async with way.running(way.broker()):
        first = await way.publish(1, "nobody", activate_in=HOUR, timer_id="t")
        second = await way.publish(2, "nobody", activate_in=due, timer_id="t", timer_conflict=conflict)
        (row,) = await way.rows()
    is_changed = conflict == "replace" or (conflict == "extend" and due > HOUR)
    assert second == (None if conflict == "ignore" else first)
    assert (row["id"], row["payload"]) == (first, b"2" if is_changed else b"1")
    waits = row["next_attempt_at"] - datetime.now(UTC)
    assert abs(waits - (due if is_changed else HOUR)) < timedelta(seconds=50)


async def test_name_is_of_its_queue(way: Way) -> None:
    async with way.running(way.broker()):
        first = await way.publish(1, "nobody", activate_in=HOUR, timer_id="t")
        second = await way.publish(2, "no one", activate_in=HOUR, timer_id="t")
    assert None not in (first, second)
    assert first != second


async def test_name_is_free_once_the_message_is_handled(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    async with way.running(broker):
        assert await way.publish(1, "orders", timer_id="t") is not None
        await seen.first()
        await way.empty()
        assert await way.publish(2, "orders", timer_id="t") is not None
        assert await seen.first(2) == [1, 2]


async def test_timer_is_taken_back_once(way: Way) -> None:
    broker = way.broker()
    async with way.running(broker):
        await way.publish(1, "nobody", activate_in=HOUR, timer_id="t")
        answers = []
        for name in ("other", "t", "t"):
            async with way.transaction() as session:
                answers.append(await broker.cancel_timer(queue="nobody", timer_id=name, session=session))
        assert answers == [False, True, False]
        await way.empty()


async def test_batch_takes_no_name(way: Way) -> None:
    broker = way.broker()
    async with way.running(broker):
        with pytest.raises(TypeError):
            await way.publish_batch(1, 2, queue="nobody", timer_id="t")
        with pytest.raises(InvalidMessage):
            await way.publish(1, "nobody", activate_at=datetime(2030, 1, 1))  # noqa: DTZ001


async def _handled(way: Way, seen: Seen, work: Any, *, fails: bool = False) -> None:
    """Let a transactional handler do something, once."""
    broker = way.broker()

    @broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, outbox: OutboxBroker, session: OutboxSession) -> None:
        seen(await work(outbox, session))
        if fails:
            raise ValueError("broken")

    async with way.running(broker):
        await way.publish(0, "nobody", activate_in=HOUR, timer_id="there")
        await way.publish_to_failing(1, "orders")
        await seen.first()
        await (way.becomes("orders", b"1") if fails else way.becomes("orders"))


async def _timer(outbox: Any, body: int, timer_id: str = "t", **options: Any) -> Any:
    return await outbox.publish(body, "nobody", activate_in=HOUR, timer_id=timer_id, **options)


async def test_handler_finds_its_own_name_taken(way: Way, seen: Seen) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        first = await _timer(outbox, 1)
        return first is not None, await _timer(outbox, 2)

    await _handled(way, seen, work)
    assert seen == [(True, None)]
    assert await way.bodies("nobody") == [b"0", b"1"]


async def test_handler_replaces_its_own_timer(way: Way, seen: Seen) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await _timer(outbox, 1) == await _timer(outbox, 2, timer_conflict="replace")

    await _handled(way, seen, work)
    assert seen == [True]
    assert await way.bodies("nobody") == [b"0", b"2"]


async def test_handler_takes_back_its_own_timer(way: Way, seen: Seen) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        await _timer(outbox, 1)
        return await outbox.cancel_timer(queue="nobody", timer_id="t", session=session)

    await _handled(way, seen, work)
    assert seen == [True]
    assert await way.bodies("nobody") == [b"0"]


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])
async def test_timer_that_a_handler_takes_back_is_gone_with_its_commit(way: Way, seen: Seen, *, fails: bool) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await outbox.cancel_timer(queue="nobody", timer_id="there", session=session)

    await _handled(way, seen, work, fails=fails)
    assert seen == [True]
    assert await way.bodies("nobody") == ([b"0"] if fails else [])


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])
async def test_timer_that_a_handler_replaces_is_another_with_its_commit(way: Way, seen: Seen, *, fails: bool) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await _timer(outbox, 1, "there", timer_conflict="replace") is not None

    await _handled(way, seen, work, fails=fails)
    assert seen == [True]
    assert await way.bodies("nobody") == ([b"0"] if fails else [b"1"])


async def test_name_that_a_failing_handler_took_is_free(way: Way, seen: Seen) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await _timer(outbox, 1) is not None

    await _handled(way, seen, work, fails=True)
    assert await way.bodies("nobody") == [b"0"]


async def test_handler_sees_what_it_has_published(way: Way, seen: Seen) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        await _timer(outbox, 1)
        return [row.payload for row in await outbox.fetch_unprocessed(session=session, queue="nobody")]

    await _handled(way, seen, work)
    assert seen == [[b"0", b"1"]]
