"""A copy of the database without its sequence, as logical replication leaves it: repaired, told, nothing lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import SequenceAdvanced
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put, reading
from tests.waiting import eventually

URI = "x://orders"


@pytest.fixture
async def outbox(engine: AsyncEngine) -> AsyncIterator[Outbox]:
    async with opened(engine, events=Events()) as outbox:
        yield outbox


@pytest.fixture
def reported(outbox: Outbox) -> list[Any]:
    """What was said about the sequence."""
    events: list[Any] = []
    outbox.events.subscribe(events.append, SequenceAdvanced)
    return events


async def _set_back(outbox: Outbox, to: int = 0) -> None:
    """What a copy without sequences looks like: the sequence as it was created, or as it was some time ago."""
    await ask(
        outbox.engine,
        "select setval('outbox_head_drawn_seq', greatest(cast(:last as bigint), 1), :last > 0)",
        last=to,
    )


async def _read_and_set_back(outbox: Outbox, count: int, to: int = 0, *, clean: bool = False) -> None:
    """A log of so many messages that are read, and perhaps deleted, copied without its sequence."""
    await put(outbox, URI, *range(count))
    assert await delivered(outbox, "broker") == [*range(count)]
    if clean:
        await outbox.clean(older_than=timedelta(0))
    await _set_back(outbox, to)


async def _drawn(outbox: Outbox) -> int:
    rows = await ask(outbox.engine, "select case when is_called then last_value else 0 end from outbox_head_drawn_seq")
    return int(rows[0][0])


@pytest.mark.parametrize("last", [0, 3], ids=["as created", "as some time ago"])
async def test_the_next_look_moves_the_sequence_on_and_tells(outbox: Outbox, reported: list[Any], last: int) -> None:
    await _read_and_set_back(outbox, 10, last)
    assert await delivered(outbox, "broker") == []
    assert reported == [SequenceAdvanced("outbox", last, 10)]
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]


@pytest.mark.parametrize("last", [0, 3], ids=["as created", "as some time ago"])
async def test_setup_moves_the_sequence_on_and_tells(outbox: Outbox, reported: list[Any], last: int) -> None:
    await _read_and_set_back(outbox, 10, last)
    for _ in range(2):
        # The second one finds a log that is as it should be, and tells nothing.
        await outbox.setup()
        assert await _drawn(outbox) == 10
        assert reported == [SequenceAdvanced("outbox", last, 10)]


@pytest.mark.parametrize("sequenced", [0, 5])
async def test_messages_that_nobody_has_sequenced_yet_count_too(
    outbox: Outbox, reported: list[Any], sequenced: int
) -> None:
    if sequenced:
        await put(outbox, URI, *range(sequenced))
        await outbox.client.sequencer.catch_up()
    await put(outbox, URI, *range(sequenced, 10))
    await _set_back(outbox)
    assert await delivered(outbox, "broker") == list(range(10))
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]
    assert reported == [SequenceAdvanced("outbox", 0, 10)]


async def test_a_running_consumer_mends_it_by_itself(outbox: Outbox, reported: list[Any]) -> None:
    collector = Collector()
    async with reading(outbox, collector, "broker"):
        await put(outbox, URI, *range(5))
        await eventually(lambda: len(collector.messages) == 5)
        await _set_back(outbox)
        await eventually(lambda: reported)
        await put(outbox, URI, "new")
        await eventually(lambda: collector.payloads[5:] == ["new"])


async def test_numbers_drawn_too_low_are_delivered_although_the_sequence_has_passed_the_end(outbox: Outbox) -> None:
    """Nobody looked until as many were published into the copy as the original had: what it drew tells nothing then."""
    await _read_and_set_back(outbox, 3, clean=True)
    await ask(outbox.engine, "update outbox_head set origin = 'another server'")
    await put(outbox, URI, *range(10, 15))
    assert await delivered(outbox, "broker") == list(range(10, 15))


async def test_number_drawn_too_low_is_delivered_although_it_is_committed_after_the_sequence_was_moved(
    outbox: Outbox, reported: list[Any]
) -> None:
    await _read_and_set_back(outbox, 3, clean=True)
    async with outbox.engine.connect() as writer:
        await outbox.publish(writer, OutboxMessage(URI, "early"))
        assert await delivered(outbox, "broker") == []
        assert reported == [SequenceAdvanced("outbox", 1, 3)]
        for number in range(3):
            await put(outbox, URI, number)
            assert await delivered(outbox, "broker") == [number]
        await writer.commit()
    await put(outbox, URI, "effect")
    assert await delivered(outbox, "broker") == ["early", "effect"]


@pytest.mark.slow
async def test_two_who_mend_it_follow_each_other(outbox: Outbox, reported: list[Any]) -> None:
    """The second must not put the sequence back behind what was published after the first."""
    await _read_and_set_back(outbox, 10)
    lock = statements("tick", outbox.client.names)["wait_for_head"]
    async with outbox.engine.connect() as first:
        await first.exec_driver_sql(lock.dollar)
        pid = (await first.exec_driver_sql("select pg_backend_pid()")).scalar_one()
        second = asyncio.create_task(outbox.client.sequencer.progress())

        async def waits() -> bool:
            blocked = "select 1 from pg_stat_activity where cast(:pid as int) = any (pg_blocking_pids(pid))"
            return second.done() or bool(await ask(outbox.engine, blocked, pid=pid))

        await eventually(waits)
        await _set_back(outbox, 15)
        await first.commit()
    await second
    assert (await _drawn(outbox), reported) == (15, [])


@pytest.mark.slow
@pytest.mark.parametrize("behind", [3, 300_000], ids=["a little", "far"])
async def test_however_far_it_lies_behind_it_is_moved_to_the_end(
    outbox: Outbox, reported: list[Any], behind: int
) -> None:
    await _set_back(outbox, behind)
    await put(outbox, URI, 1)
    await drain(outbox, Collector(), "broker")
    await _set_back(outbox)
    await outbox.setup()
    assert reported == [SequenceAdvanced("outbox", 0, behind + 1)]
    await put(outbox, URI, 2)
    assert await delivered(outbox, "broker") == [2]
