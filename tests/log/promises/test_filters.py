"""Filters: what they match, and that what they do not match costs and holds back nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import GroupExpired
from faststream_outbox._internal.log.sharing.slots import partition
from faststream_outbox.log import Outbox, OutboxMessage, slot_of
from tests.cases import case
from tests.log.asked import recorded
from tests.log.opened import Collector, ask, delivered, drain, put
from tests.waiting import eventually


async def _others(outbox: Outbox, count: int, uri: str = "kafka://others") -> None:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, *[OutboxMessage(f"{uri}/{number}", number) for number in range(count)])


async def _cursor(outbox: Outbox, uri: str = "", group: str = "broker") -> int:
    async with outbox.engine.connect() as connection:
        return (await outbox.get_cursor(connection, group, uri)).position


@pytest.mark.slow
async def test_a_filter_that_matches_nothing_advances(outbox: Outbox) -> None:
    await _others(outbox, 3000)
    assert not await outbox.dispatch(Collector(), "broker", "kafka://orders")
    assert await _cursor(outbox, "kafka://orders") == 3000


@pytest.mark.slow
async def test_a_filter_that_matches_nothing_reads_what_is_there_once(outbox: Outbox) -> None:
    await _others(outbox, 3000)
    await outbox.dispatch(Collector(), "broker", "kafka://orders")
    with recorded(outbox) as asked:
        assert not await outbox.dispatch(Collector(), "broker", "kafka://orders")
    assert [each.statement.name for each in asked if each.statement.name == "fetch"] == []


async def test_a_worker_that_owns_none_of_the_messages_advances(outbox: Outbox) -> None:
    other = next(uri for uri in (f"kafka://orders/{number}" for number in range(100)) if slot_of(uri) < 128)
    await put(outbox, other, *range(500))
    assert await delivered(outbox, "broker", worker_id=1, num_workers=2) == []
    lags = await outbox.lag("broker")
    assert {lag.slots: lag.cursor.position for lag in lags}[partition(1, 2)] == 500


async def test_a_running_group_that_matches_nothing_writes_its_progress(outbox: Outbox) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(
        outbox.run(Collector(), "broker", "kafka://orders", poll_interval=0.1, stop_event=stop)
    )
    await _others(outbox, 500)

    async def has_advanced() -> bool:
        return await _cursor(outbox, "kafka://orders") == 500

    await eventually(has_advanced)
    stop.set()
    await asyncio.wait_for(running, 30)


async def test_a_match_behind_many_others_is_found(outbox: Outbox) -> None:
    await _others(outbox, 5000)
    await put(outbox, "kafka://orders", "here")
    await _others(outbox, 100)
    assert await delivered(outbox, "broker", "kafka://orders") == ["here"]


@pytest.mark.slow
async def test_a_filter_that_matches_nothing_does_not_pin_retention(outbox: Outbox) -> None:
    for _ in range(3):
        await _others(outbox, 100)
        await outbox.dispatch(Collector(), "broker", "kafka://orders")
    cleaned = await outbox.clean(older_than=timedelta(0))
    # The part of the log in which the group stands may stay.
    assert cleaned.messages >= 200


async def test_an_unread_message_is_kept_for_the_group_that_has_yet_to_read_it(outbox: Outbox) -> None:
    for number in range(3):
        await put(outbox, "kafka://orders", number)
        await drain(outbox, Collector(), "fast")
    await outbox.dispatch(Collector(), "slow", batch_size=1)
    await outbox.clean(older_than=timedelta(0))
    assert await delivered(outbox, "slow") == [1, 2]


async def test_a_group_that_is_dead_stops_holding_messages_back_and_that_is_told(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    reported: list[Any] = []
    outbox.events.subscribe(reported.append, GroupExpired)
    await put(outbox, "kafka://orders", 0)
    await outbox.dispatch(Collector(), "dead")
    for number in range(1, 4):
        await put(outbox, "kafka://orders", number)
        await drain(outbox, Collector(), "alive")
    await ask(engine, "update outbox_offsets set updated_at = now() - interval '2 days' where consumer_group = 'dead'")
    assert (await outbox.clean(older_than=timedelta(0))).messages <= 1
    cleaned = await outbox.clean(older_than=timedelta(0), group_expires_after=timedelta(days=1))
    assert cleaned.messages >= 2
    assert [(event.group, event.idle_seconds > 86_400) for event in reported] == [("dead", True)]


STRANGERS = [
    ("x://a_b", "x://aXb"),
    ("x://a_b", "x://aXb/1"),
    ("x://a%", "x://abc/1"),
    ("x://%", "x://abc"),
    ("x://a\\", "x://a/1"),
    ("x://a\\_b", "x://a_b/1"),
    ("x://a", "X://A/1"),
    ("x://a.b", "x://aXb/1"),
    ("x://a/", "x://a"),
    ("x://a", "x://a "),
    ("x://a", "x://ab"),
]


@pytest.mark.slow
async def test_a_filter_is_text_and_not_a_pattern(outbox: Outbox) -> None:
    for number, (wanted, stranger) in enumerate(STRANGERS, start=1):
        await put(outbox, stranger, "stranger")
        await put(outbox, wanted, number)
        await put(outbox, f"{wanted}below" if wanted.endswith("/") else f"{wanted}/below", -number)
        with case((wanted, stranger)):
            assert await delivered(outbox, f"group {number}", wanted) == [number, -number]
        await ask(outbox.engine, "truncate outbox")


async def test_a_filter_by_a_key_with_letters_beyond_ascii(outbox: Outbox) -> None:
    await put(outbox, "x://zürich/1", 1)
    await put(outbox, "x://zu\u0308rich/1", "composed otherwise")
    assert await delivered(outbox, "broker", "x://zürich") == [1]
