"""What `TestOutboxBroker` gives to tests of an application."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from faststream.exceptions import SetupError, SubscriberNotFound
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, OutboxBroker, TestOutboxBroker
from faststream_outbox._internal.events.types import Handled
from faststream_outbox.testing import FakeOutboxClient, fake_session, fake_sync_session
from tests.broker.conformance.differences import LOOPS
from tests.broker.conformance.ways import Seen, Way, answering, failing, noting


@pytest.fixture
def broker(memory: Way) -> OutboxBroker:
    return memory.broker()


async def test_handler_and_publisher_have_mocks(broker: OutboxBroker) -> None:
    publisher = broker.publisher("bills")
    handle = answering(broker)
    publisher(handle)
    async with TestOutboxBroker(broker) as tested:
        # A due time does not delay an immediate handler.
        await tested.publish(1, "orders", session=fake_session(), correlation_id="c1", activate_in=timedelta(days=1))
        handle.mock.assert_called_once_with(1)
        await handle.assert_called_once_with(1, correlation_id="c1")
        publisher.mock.assert_called_once_with(2)
    with pytest.raises(SetupError):
        handle.mock.assert_called_once()


async def test_stand_ins_for_publishers_are_taken_away(broker: OutboxBroker) -> None:
    publisher = broker.publisher("bills")
    async with TestOutboxBroker(broker):
        assert len(broker.subscribers) == 1
    assert (len(broker.subscribers), publisher.queue) == (0, "bills")


@pytest.mark.parametrize("error", [ZeroDivisionError, pytest.fail.Exception])
async def test_exception_of_a_handler_is_raised_to_whoever_publishes(
    broker: OutboxBroker, error: type[BaseException]
) -> None:
    failing(broker, error=error)
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(error):
            await tested.publish(1, "orders", session=fake_session())


async def test_request_without_a_subscriber_is_refused(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(SubscriberNotFound):
            await tested.request(1, "orders")


async def test_fake_client_is_on_the_broker_inside_only(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        client: Any = tested.fake_client  # type: ignore[attr-defined]
        assert isinstance(client, FakeOutboxClient)
    assert not hasattr(broker, "fake_client")


async def test_time_can_be_advanced_to_a_retry(broker: OutboxBroker, seen: Seen) -> None:
    @broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=3600))
    async def handle(body: int) -> None:
        seen(body)
        if len(seen) == 1:
            raise ValueError

    async with (test := TestOutboxBroker(broker, run_loops=True, connect_only=False)) as tested:
        await tested.publish(1, "orders", session=fake_session())
        await seen.first(1)
        way = Way(LOOPS)
        way.test = test
        await way.attempted()
        test.advance(3601)
        await seen.first(2)
        await way.empty()


async def test_time_can_be_advanced_to_a_timer(broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with (test := TestOutboxBroker(broker, run_loops=True, connect_only=False)) as tested:
        session = fake_session()
        await tested.publish(1, "orders", session=session, activate_in=timedelta(hours=1), timer_id="t")
        await tested.publish(2, "orders", session=session)
        assert await seen.first(1) == [2]
        test.advance(timedelta(hours=2))
        assert await seen.first(2) == [2, 1]


async def test_row_can_be_fed(broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with (test := TestOutboxBroker(broker, run_loops=True, connect_only=False)):
        test.feed("orders", b'{"id": 1}', headers={"content-type": "application/json"})
        assert await seen.first() == [{"id": 1}]


async def test_with_real_the_real_broker_runs_and_mocks_record(real: Way, seen: Seen) -> None:
    broker = real.broker()
    handle = noting(broker, seen)
    async with TestOutboxBroker(broker, with_real=True) as tested:
        async with AsyncSession(real.engine) as session, session.begin():
            await tested.publish(1, "orders", session=session)
            assert len(await tested.fetch_unprocessed(session=session)) == 1
        await handle.wait_call(5)
        handle.mock.assert_called_once_with(1)
        await real.empty()


async def test_rollback_of_a_fake_session_takes_its_messages_back(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        session = fake_session()
        await tested.publish(1, "nobody", session=session, timer_id="t")
        await session.commit()
        await tested.publish(2, "nobody", session=session)
        assert await tested.cancel_timer(queue="nobody", timer_id="t", session=session)
        await session.rollback()
        assert [row.payload for row in await tested.fetch_unprocessed(session=session)] == [b"1"]


async def test_code_without_a_loop_is_tested_with_a_session_that_does_nothing(broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with TestOutboxBroker(broker) as tested:
        session = fake_sync_session()
        tested.publish_sync(1, "orders", session=session)
        session.rollback()
        await asyncio.to_thread(tested.publish_sync, 2, "orders", session=session)
        assert await seen.first() == [2]


async def test_failure_after_publishing_without_a_loop_is_raised_at_the_end(broker: OutboxBroker) -> None:
    failing(broker, error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        async with TestOutboxBroker(broker) as tested:
            tested.publish_sync(1, "orders", session=fake_sync_session())


async def test_whoever_listens_to_the_broker_hears_of_the_test(real: Way, seen: Seen) -> None:
    broker, heard = real.broker(), Seen()
    broker.client.events.subscribe(heard, Handled)
    noting(broker, seen)
    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, "orders", session=fake_session())
    assert [event.queue for event in heard] == ["orders"]


@pytest.mark.parametrize("is_used_again", [True, False])
async def test_each_test_begins_with_empty_tables(broker: OutboxBroker, seen: Seen, *, is_used_again: bool) -> None:
    test = TestOutboxBroker(broker, connect_only=False)
    noting(broker, seen)
    for number in range(2):
        async with test if is_used_again else TestOutboxBroker(broker) as tested:
            await tested.publish(1, "nobody", session=fake_session())
            await tested.publish(number, "orders", session=fake_session())
            assert len(await tested.fetch_unprocessed(session=fake_session())) == 1
    assert seen == [0, 1]
