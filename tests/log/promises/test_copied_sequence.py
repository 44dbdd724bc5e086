"""A copy of the database without its sequence, as logical replication leaves it: repaired, told, nothing lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import SequenceAdvanced
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import OutboxError
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put
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


async def _drawn(outbox: Outbox) -> int:
    rows = await ask(outbox.engine, "select case when is_called then last_value else 0 end from outbox_head_drawn_seq")
    return int(rows[0][0])


@pytest.mark.parametrize("last", [0, 3], ids=["as created", "as some time ago"])
async def test_the_next_look_moves_the_sequence_on_and_tells(outbox: Outbox, reported: list[Any], last: int) -> None:
    await put(outbox, URI, *range(10))
    assert await delivered(outbox, "broker") == list(range(10))
    await _set_back(outbox, last)
    assert await delivered(outbox, "broker") == []
    assert reported == [SequenceAdvanced("outbox", last, 10)]
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]


@pytest.mark.parametrize("last", [0, 3], ids=["as created", "as some time ago"])
async def test_setup_moves_the_sequence_on_and_tells(outbox: Outbox, reported: list[Any], last: int) -> None:
    await put(outbox, URI, *range(10))
    await drain(outbox, Collector(), "broker")
    await _set_back(outbox, last)
    await outbox.setup()
    assert await _drawn(outbox) == 10
    assert reported == [SequenceAdvanced("outbox", last, 10)]


async def test_setup_of_a_log_that_is_as_it_should_be_tells_nothing(outbox: Outbox, reported: list[Any]) -> None:
    await outbox.setup()
    await put(outbox, URI, *range(10))
    await outbox.setup()
    assert await _drawn(outbox) == 10
    assert reported == []


@pytest.mark.slow
async def test_messages_that_nobody_has_sequenced_yet_count_too(outbox: Outbox, reported: list[Any]) -> None:
    await put(outbox, URI, *range(5))
    await outbox.client.sequencer.catch_up()
    await put(outbox, URI, *range(5, 10))
    await _set_back(outbox)
    assert await delivered(outbox, "broker") == list(range(10))
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]
    assert reported == [SequenceAdvanced("outbox", 0, 10)]


async def test_messages_of_a_log_that_was_never_sequenced_are_delivered(outbox: Outbox, reported: list[Any]) -> None:
    await put(outbox, URI, *range(5))
    await _set_back(outbox)
    assert await delivered(outbox, "broker") == list(range(5))
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]


async def test_a_running_consumer_mends_it_by_itself(outbox: Outbox, reported: list[Any]) -> None:
    collector, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, "broker", stop_event=stop))
    await put(outbox, URI, *range(5))
    await eventually(lambda: len(collector.messages) == 5)
    await _set_back(outbox)
    await eventually(lambda: reported)
    await put(outbox, URI, "new")
    await eventually(lambda: collector.payloads[5:] == ["new"])
    stop.set()
    await asyncio.wait_for(running, 30)


async def test_publishing_before_anybody_looked_is_refused_and_not_lost(outbox: Outbox) -> None:
    await put(outbox, URI, *range(5))
    await drain(outbox, Collector(), "broker")
    await _set_back(outbox)
    with pytest.raises((IntegrityError, OutboxError)):
        await put(outbox, URI, "too early")
    assert await delivered(outbox, "broker") == []
    await put(outbox, URI, "new")
    assert await delivered(outbox, "broker") == ["new"]


async def test_publishing_before_anybody_looked_is_refused_also_where_the_old_numbers_are_free(outbox: Outbox) -> None:
    """Retention has deleted the old messages: their numbers could be drawn again, behind every cursor."""
    for number in range(3):
        await put(outbox, URI, number)
        await drain(outbox, Collector(), "broker")
    await outbox.clean(older_than=timedelta(0))
    await _set_back(outbox)
    try:
        await put(outbox, URI, "early")
    except (IntegrityError, OutboxError):
        return
    assert await delivered(outbox, "broker") == ["early"]


async def test_numbers_drawn_too_low_are_delivered_although_the_sequence_has_passed_the_end(outbox: Outbox) -> None:
    """Nobody looked until as many were published into the copy as the original had: what it drew tells nothing then."""
    await put(outbox, URI, *range(3))
    await drain(outbox, Collector(), "broker")
    await outbox.clean(older_than=timedelta(0))
    await _set_back(outbox)
    await ask(outbox.engine, "update outbox_head set origin = 'another server'")
    await put(outbox, URI, *range(10, 15))
    assert await delivered(outbox, "broker") == list(range(10, 15))


async def test_number_drawn_too_low_is_delivered_although_it_is_committed_after_the_sequence_was_moved(
    outbox: Outbox, reported: list[Any]
) -> None:
    await put(outbox, URI, *range(3))
    await drain(outbox, Collector(), "broker")
    await outbox.clean(older_than=timedelta(0))
    await _set_back(outbox)
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
    await put(outbox, URI, *range(10))
    await drain(outbox, Collector(), "broker")
    await _set_back(outbox)
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
