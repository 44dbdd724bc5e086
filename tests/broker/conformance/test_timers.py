"""Timers: due times, names that are taken, and taking back, also in a handler's own transaction."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faststream_outbox import ConstantRetry
from faststream_outbox import OutboxBroker as Broker
from faststream_outbox.annotations import OutboxBroker, OutboxSession
from tests.broker.conformance.differences import DUE, differs
from tests.broker.conformance.ways import Seen, Way, noting

HOUR = timedelta(hours=1)
LATER = ConstantRetry(delay_seconds=1000)


@differs(DUE)
async def test_message_waits_until_it_is_due(way: Way, broker: Broker, seen: Seen) -> None:
    noting(broker, seen, note=lambda body, message: (body, datetime.now(UTC)))
    async with way.running(broker):
        due = datetime.now(UTC) + timedelta(seconds=0.3)
        await way.publish(1, "orders", activate_in=timedelta(seconds=0.3))
        await way.publish(2, "orders", activate_at=datetime.now(UTC) + HOUR)
        await way.publish(3, "orders")
        handled_at = dict(await seen.first(2))
        assert sorted(handled_at) == [1, 3]
        assert handled_at[1] >= due
        await way.becomes("orders", b"2")


async def test_name_is_free_once_the_message_is_handled(way: Way, broker: Broker, seen: Seen) -> None:
    noting(broker, seen)
    async with way.running(broker):
        assert await way.publish(1, "orders", timer_id="t") is not None
        await seen.first()
        await way.empty()
        assert await way.publish(2, "orders", timer_id="t") is not None
        assert await seen.first(2) == [1, 2]


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


async def _takes_a_taken_name(outbox: Any, session: Any) -> Any:
    first = await _timer(outbox, 1)
    return first is not None, await _timer(outbox, 2)


async def _replaces_its_own(outbox: Any, session: Any) -> Any:
    return await _timer(outbox, 1) == await _timer(outbox, 2, timer_conflict="replace")


async def _takes_back_its_own(outbox: Any, session: Any) -> Any:
    await _timer(outbox, 1)
    return await outbox.cancel_timer(queue="nobody", timer_id="t", session=session)


async def _looks(outbox: Any, session: Any) -> Any:
    await _timer(outbox, 1)
    return [row.payload for row in await outbox.fetch_unprocessed(session=session, queue="nobody")]


@pytest.mark.parametrize(
    ("work", "noted", "left"),
    [
        (_takes_a_taken_name, (True, None), [b"0", b"1"]),
        (_replaces_its_own, True, [b"0", b"2"]),
        (_takes_back_its_own, True, [b"0"]),
        (_looks, [b"0", b"1"], [b"0", b"1"]),
    ],
)
async def test_handler_sees_what_it_has_published(
    way: Way, seen: Seen, work: Any, noted: Any, left: list[bytes]
) -> None:
    await _handled(way, seen, work)
    assert seen == [noted]
    assert await way.bodies("nobody") == left


FAILS = pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])


@FAILS
async def test_timer_that_a_handler_takes_back_is_gone_with_its_commit(way: Way, seen: Seen, *, fails: bool) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await outbox.cancel_timer(queue="nobody", timer_id="there", session=session)

    await _handled(way, seen, work, fails=fails)
    assert seen == [True]
    assert await way.bodies("nobody") == ([b"0"] if fails else [])


@FAILS
@pytest.mark.parametrize(("name", "left"), [("there", [b"1"]), ("of its own", [b"0", b"1"])])
async def test_timer_that_a_handler_replaces_or_sets_is_there_with_its_commit(
    way: Way, seen: Seen, name: str, left: list[bytes], *, fails: bool
) -> None:
    async def work(outbox: Any, session: Any) -> Any:
        return await _timer(outbox, 1, name, timer_conflict="replace") is not None

    await _handled(way, seen, work, fails=fails)
    assert seen == [True]
    assert await way.bodies("nobody") == ([b"0"] if fails else left)
