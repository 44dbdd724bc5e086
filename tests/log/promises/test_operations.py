"""What running a log takes: trying again, giving up, waking up, and knowing how far behind one is."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import Died, Handled, Retried
from faststream_outbox._internal.outcomes.retry import ConstantRetry, ExponentialRetry, NoRetry
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put
from tests.waiting import eventually

URI = "kafka://orders"


async def _refuse(message: OutboxMessage) -> None:
    raise RuntimeError(f"no {message.payload}")


async def test_a_failure_blocks_its_key_and_nothing_else(engine: AsyncEngine) -> None:
    async with opened(engine, retry_strategy=ConstantRetry(delay_seconds=0.05)) as outbox:
        failed: list[Any] = []
        collector = Collector()

        async def handle(message: OutboxMessage) -> None:
            if message.payload == "bad" and len(failed) < 2:
                failed.append(message.payload)
                raise RuntimeError("no")
            await collector(message)

        await put(outbox, f"{URI}/a", "bad", "behind")
        await put(outbox, f"{URI}/b", "other")
        stop = asyncio.Event()
        running = asyncio.create_task(outbox.run(handle, "broker", stop_event=stop))
        await eventually(lambda: len(collector.messages) == 3)
        stop.set()
        await asyncio.wait_for(running, 30)
        assert collector.of(f"{URI}/a") == ["bad", "behind"]
        assert collector.payloads[0] == "other"


@pytest.mark.slow
async def test_attempts_are_further_and_further_apart(engine: AsyncEngine) -> None:
    strategy = ExponentialRetry(initial_delay_seconds=0.02, multiplier=4.0, max_attempts=4, jitter_factor=0.0)
    async with opened(engine, retry_strategy=strategy) as outbox:
        retried: list[Any] = []
        outbox.events.subscribe(retried.append, Retried, Died)
        await put(outbox, URI, 1)

        async def is_parked() -> bool:
            await outbox.dispatch(_refuse, "broker")
            return bool(await outbox.parked.list("broker"))

        await eventually(is_parked)
        delays = [event.delay_seconds for event in retried if isinstance(event, Retried)]
        assert delays == [0.02, 0.08, 0.32]
        assert [event.deliveries_count for event in retried] == [1, 2, 3, 4]


async def test_a_message_that_fails_for_good_is_parked_with_its_error_for_an_operator(engine: AsyncEngine) -> None:
    async with opened(engine, retry_strategy=NoRetry()) as outbox:
        await put(outbox, URI, "bad", "next")
        assert len((await outbox.dispatch(_refuse, "broker", batch_size=1)).failures) == 1
        (parked,) = await outbox.parked.list("broker")
        assert (parked.error_message, parked.attempts, parked.key) == ("no bad", 1, URI)
        assert "RuntimeError: no bad" in (parked.traceback or "")
        assert await delivered(outbox, "broker") == ["next"]
        assert await outbox.parked.retry("broker") == [parked.position]
        assert await delivered(outbox, "broker") == ["bad"]


async def test_what_becomes_of_messages_is_told(engine: AsyncEngine) -> None:
    async with opened(engine, retry_strategy=NoRetry()) as outbox:
        reported: list[Any] = []
        outbox.events.subscribe(reported.append, Handled, Died)
        await put(outbox, f"{URI}/a", "good")
        await drain(outbox, Collector(), "broker")
        await put(outbox, f"{URI}/b", "bad")
        await drain(outbox, _refuse, "broker")
        assert [type(event) for event in reported] == [Handled, Died]


async def test_a_consumer_does_not_wait_for_its_polling(outbox: Outbox) -> None:
    collector, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, "broker", poll_interval=3600.0, stop_event=stop))
    for number in range(3):
        # A connection without hooks, as another process: nobody tells the consumer.
        async with outbox.engine.begin() as connection:
            await outbox.publish(connection, OutboxMessage(URI, number))
        await eventually(lambda count=number + 1: len(collector.messages) == count)
    stop.set()
    await asyncio.wait_for(running, 30)


async def test_publishers_send_no_notification(engine: AsyncEngine, outbox: Outbox) -> None:
    """A NOTIFY in the transaction halves what publishers can do: the tick sends the one that there is."""
    async with engine.connect() as connection:
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        heard: list[str] = []
        channel = outbox.client.names.channel
        await raw.add_listener(channel, lambda *sent: heard.append(sent[3]))
        for number in range(5):
            await put(outbox, URI, number)
        # A round trip later than any notification of what was committed before it.
        await raw.fetch("select 1")
        assert heard == []
        await outbox.client.sequencer.catch_up()
        await eventually(lambda: heard)
        await raw.fetch("select 1")
        assert len(heard) == 1
        await raw.reset()


async def test_lag_is_known_in_messages_and_in_seconds(outbox: Outbox) -> None:
    await put(outbox, URI, *range(10))
    await outbox.dispatch(Collector(), "broker", batch_size=4)
    (lag,) = await outbox.lag("broker")
    assert lag.messages == 6
    assert lag.seconds >= 0
    await ask(outbox.engine, "update outbox_ticks set at = at - interval '1 hour'")
    (lag,) = await outbox.lag("broker")
    assert 3600 <= lag.seconds < 3700
    await drain(outbox, Collector(), "broker")
    (lag,) = await outbox.lag("broker")
    assert (lag.messages, lag.seconds) == (0, 0)


async def test_a_filters_lag_counts_what_it_matches(outbox: Outbox) -> None:
    await outbox.dispatch(Collector(), "broker", URI)
    await put(outbox, URI, 1)
    await put(outbox, "kafka://others", *range(50))
    assert [lag.messages for lag in await outbox.lag("broker", URI)] == [1]
