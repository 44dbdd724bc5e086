"""Filters: what they match, and that what they do not match costs and holds back nothing."""

from datetime import timedelta

import pytest

from faststream_outbox._internal.log.sharing.slots import partition
from faststream_outbox.log import Outbox, OutboxMessage, slot_of
from tests.cases import case
from tests.log.asked import recorded
from tests.log.opened import Collector, ask, delivered, put


async def _others(outbox: Outbox, count: int, uri: str = "kafka://others") -> None:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, *[OutboxMessage(f"{uri}/{number}", number) for number in range(count)])


async def _cursor(outbox: Outbox, uri: str = "", group: str = "broker") -> int:
    async with outbox.engine.connect() as connection:
        return (await outbox.get_cursor(connection, group, uri)).position


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


@pytest.mark.slow
async def test_a_filter_that_matches_nothing_does_not_pin_retention(outbox: Outbox) -> None:
    for _ in range(3):
        await _others(outbox, 100)
        await outbox.dispatch(Collector(), "broker", "kafka://orders")
    cleaned = await outbox.clean(older_than=timedelta(0))
    # The part of the log in which the group stands may stay.
    assert cleaned.messages >= 200


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
