"""Starting, pausing and stopping subscribers of topics: what is in flight finishes, slots are free, nothing twice."""

import asyncio
from typing import Any

import pytest
from faststream.exceptions import IncorrectState, StopConsume
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import TestOutboxBroker
from faststream_outbox._internal.events.types import DrainTimedOut, Released
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox.errors import UnknownName
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


class Slow:
    """A handler that is held up at its first message or batch."""

    def __init__(self, stage: Stage, **options: Any) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        @stage.broker.subscriber(topic="orders", group="billing", **options)
        async def handle(body: Any) -> None:
            self.begun.set()
            await self.may_end.wait()
            stage.seen.append(body)


async def stop_meanwhile(stage: Stage, begun: asyncio.Event, may_end: asyncio.Event) -> None:
    """Stop the broker while a message is in hand, which then ends."""
    await begun.wait()
    stopping = asyncio.create_task(stage.broker.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    may_end.set()
    await stopping


async def test_message_in_hand_finishes_and_the_next_one_does_not_begin(stage: Stage) -> None:
    slow = Slow(stage)
    await stage.publish(1, 2, 3, key="order-1")
    await stage.broker.start()
    await stop_meanwhile(stage, slow.begun, slow.may_end)
    assert stage.seen == [1]


async def test_slots_are_free_at_once(stage: Stage) -> None:
    slow = Slow(stage)
    await stage.play(1, key="order-1")
    await slow.begun.wait()
    slow.may_end.set()
    await stage.broker.stop()
    assert await stage.slots() == [(None, 256)]
    assert await stage.sql(f"select 1 from {stage.log_tables.members.name}") == []


async def test_batch_in_hand_finishes(stage: Stage) -> None:
    slow = Slow(stage, batch=True, batch_size=2)
    await stage.publish(1, 2, 3, key="order-1")
    await stage.broker.start()
    await stop_meanwhile(stage, slow.begun, slow.may_end)
    assert stage.seen == [[1, 2]]
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [[1, 2], [3]]


async def test_transaction_in_hand_commits(stage: Stage) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def wait(session: AsyncSession, message: Any) -> None:
        begun.set()
        await may_end.wait()

    stage.writes(wait)
    await stage.publish(1, 2, key="order-1")
    await stage.broker.start()
    await stop_meanwhile(stage, begun, may_end)
    assert await stage.effect_numbers() == [1]
    await stage.broker.start()
    await stage.caught_up()
    assert await stage.effect_numbers() == [1, 2]


async def test_handler_that_takes_too_long_is_cancelled_and_its_message_comes_again(stage: Stage) -> None:
    broker = stage.replace(graceful_timeout=0.1)
    slow = Slow(stage)
    await stage.publish(1, 2, key="order-1")
    await broker.start()
    await slow.begun.wait()
    await broker.stop()
    assert stage.seen == []
    assert [event.running for event in stage.witness.of(DrainTimedOut)] == [1]
    assert [(event.id, event.was_started) for event in stage.witness.of(Released)] == [(1, True)]
    assert await stage.slots() == [(None, 256)]
    slow.may_end.set()
    await broker.start()
    await stage.caught_up()
    assert stage.seen == [1, 2]


@pytest.mark.parametrize("timeout", [None, 0.0, 3600.0])
async def test_idle_subscriber_stops_at_once_and_gives_its_slots_back(stage: Stage, timeout: float | None) -> None:
    broker = stage.replace(graceful_timeout=timeout)
    Slow(stage, max_workers=4, min_fetch_interval=50.0, max_fetch_interval=50.0)
    await broker.start()
    await stage.shared_by(4)
    async with asyncio.timeout(30):
        await broker.stop()
    assert await stage.slots() == [(None, 256)]
    assert stage.witness.of(DrainTimedOut) == []


async def test_broker_can_be_started_again(stage: Stage) -> None:
    stage.reads()
    await stage.broker.stop()
    assert await stage.slots() == []
    for number in range(3):
        await stage.play(number, key="order-1")
        await stage.saw(number + 1)
        await stage.broker.stop()
    assert stage.seen == [0, 1, 2]


async def test_stopping_leaves_no_connection_of_its_own(stage: Stage, database_url: URL, sync_engine: Engine) -> None:
    named = {"application_name": "stopped"}
    engine = create_async_engine(database_url, connect_args={"server_settings": named})
    stage.replace(engine=engine)
    stage.reads()
    await stage.play(1, key="order-1")
    await stage.saw(1)
    await stage.broker.stop()
    await engine.dispose()

    def no_connection_is_left() -> bool:
        with sync_engine.connect() as connection:
            asked = "select count(*) from pg_stat_activity where application_name like '%stopped'"
            return not connection.execute(text(asked)).scalar_one()

    await eventually(no_connection_is_left)


async def test_other_member_finishes_when_a_handler_stops_its_subscriber(stage: Stage) -> None:
    """The message that says so is tried again, by whoever comes next, as under NACK_ON_ERROR any failure is."""
    both, may_end = asyncio.Barrier(2), asyncio.Event()

    @stage.broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: int) -> None:
        if len(stage.seen) < 2:
            stage.seen.append("begun")
            await both.wait()
            if body % 2 == 0:
                raise StopConsume
            await may_end.wait()
            stage.seen.append("ended")

    await stage.broker.start()
    await stage.shared_by(2)
    # Keys of the one and of the other member.
    even, odd = (next(str(n) for n in range(99) if (slot_of(f"orders/{n}") < 128) is low) for low in (True, False))
    await stage.publish(0, 1, keys=[even, odd])
    await stage.saw(2)
    may_end.set()
    await stage.saw(3)

    async def slots_are_free() -> bool:
        return await stage.slots() == [(None, 256)]

    await eventually(slots_are_free)
    assert [each.state for each in await stage.deferred()] == ["retry"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
async def test_handler_that_takes_longer_than_its_lease_keeps_it(stage: Stage) -> None:
    slow = Slow(stage, lease_ttl_seconds=2.0)
    other = stage.another()
    stage.reads(broker=other, lease_ttl_seconds=2.0, notes=lambda body, _: ("other", body))
    await stage.play(1, key="order-1")
    await slow.begun.wait()
    await other.start()
    await asyncio.sleep(2.5)
    slow.may_end.set()
    await stage.caught_up()
    assert stage.seen == [1]


async def test_group_is_paused_and_resumed_through_the_broker(stage: Stage) -> None:
    stage.reads()
    await stage.play(1)
    await stage.saw(1)
    operator = stage.another()
    assert await operator.groups.pause("billing", "orders")

    async def is_left() -> bool:
        return (await operator.groups.list("billing"))[0].slots == 0

    await eventually(is_left)
    assert await stage.broker.ping()
    await stage.publish(2)
    assert [(each.name, each.uri) for each in await operator.groups.paused()] == [("billing", "orders")]
    assert stage.seen == [1]
    assert await operator.groups.resume("billing", "orders")
    assert await stage.saw(2) == [1, 2]
    with pytest.raises(UnknownName, match="billing"):
        await operator.groups.pause("biling", "orders")
    assert await operator.parked.list() == []


async def test_test_broker_refuses_what_is_for_operators(stage: Stage) -> None:
    async with TestOutboxBroker(stage.broker) as broker:
        with pytest.raises(IncorrectState, match="fake_client"):
            _ = broker.groups
