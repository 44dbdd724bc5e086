"""Topics under the test broker: handlers run at once, once for each group, and their errors reach the test."""

from typing import Any

import pytest

from faststream_outbox import OutboxBroker, OutboxResponse, OutboxRouter, TestOutboxBroker
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage, reads

ORDER: dict[str, Any] = {"topic": "orders", "session": fake_session()}


@pytest.fixture
def seen() -> list[Any]:
    return []


def more(body: int) -> int:
    return body + 1


async def test_every_group_handles_a_message_once(broker: OutboxBroker, seen: list[Any]) -> None:
    bill, mail = reads(broker, seen), reads(broker, seen, group="mail")

    @broker.subscriber("orders")
    async def of_queue(body: dict[str, int]) -> None: ...

    async with TestOutboxBroker(broker) as tested:
        await tested.publish({"id": 1}, key="order-1", **ORDER)
        bill.mock.assert_called_once_with({"id": 1})
        mail.mock.assert_called_once_with({"id": 1})
        of_queue.mock.assert_not_called()
        await tested.publish({"id": 2}, "orders", session=fake_session())
        await tested.publish({"id": 3}, topic="others", session=fake_session())
    assert seen == [{"id": 1}, {"id": 1}]


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
async def test_two_members_of_a_group_handle_a_message_once(broker: OutboxBroker, seen: list[Any]) -> None:
    reads(broker, seen)
    reads(broker, seen)
    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, **ORDER)
    assert seen == [1]


async def test_messages_are_kept_for_the_test_to_see(broker: OutboxBroker) -> None:
    test = TestOutboxBroker(broker)
    async with test as tested:
        positions = [await tested.publish(number, key=f"order-{number}", **ORDER) for number in range(2)]
        kept = test.fake_client.messages
        assert [(each.uri, each.position) for each in kept] == [("orders/order-0", 1), ("orders/order-1", 2)]
        assert positions == [1, 2]
        assert test.fake_client.rows == []


async def test_batch_subscriber_gets_what_is_published_together(broker: OutboxBroker, seen: list[Any]) -> None:
    reads(
        broker, seen, batch=True, notes=lambda bodies, batch: (bodies, [one.raw_message.key for one in batch.messages])
    )
    async with TestOutboxBroker(broker) as tested:
        assert await tested.publish_batch(1, 2, keys=["a", "b"], **ORDER) == [1, 2]
    assert seen == [([1, 2], ["a", "b"])]


async def test_publisher_is_called_with_what_a_handler_returns(broker: OutboxBroker, seen: list[Any]) -> None:
    router = OutboxRouter(prefix="shop.")
    publisher = router.publisher(topic="bills", key="bill-1")
    publisher(reads(router, seen, returns=more))
    broker.include_router(router)
    test = TestOutboxBroker(broker)
    async with test as tested:
        await tested.publish(1, topic="shop.orders", session=fake_session())
        publisher.mock.assert_called_once_with(2)
        assert [each.uri for each in test.fake_client.messages] == ["shop.orders", "shop.bills/bill-1"]


async def test_publisher_with_a_subscriber_reaches_it(broker: OutboxBroker, seen: list[Any]) -> None:
    publisher, mail = broker.publisher(topic="bills"), reads(broker, seen, topic="bills", group="mail")
    async with TestOutboxBroker(broker):
        await publisher.publish(1, session=fake_session())
        mail.mock.assert_called_once_with(1)
        publisher.mock.assert_called_once_with(1)


async def test_publishers_of_a_queue_and_a_topic_of_one_name_are_told_apart(broker: OutboxBroker) -> None:
    to_topic, to_queue = broker.publisher(topic="bills"), broker.publisher("bills")
    async with TestOutboxBroker(broker):
        await to_topic.publish(1, session=fake_session())
        await to_queue.publish(2, session=fake_session())
        to_topic.mock.assert_called_once_with(1)
        to_queue.mock.assert_called_once_with(2)


@pytest.mark.parametrize("session", [None, fake_session()], ids=["no session", "session"])
async def test_response_reaches_its_topic(broker: OutboxBroker, seen: list[Any], session: Any) -> None:
    reads(broker, [], returns=lambda body: OutboxResponse(body + 1, topic="bills", key="bill-1", session=session))
    reads(broker, seen, topic="bills", notes=lambda body, message: (body, message.raw_message.key))
    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, **ORDER)
    assert seen == [(2, "bill-1")]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_transactional_handler_publishes_is_there_after_its_commit(
    broker: OutboxBroker, seen: list[Any], fails: bool
) -> None:
    test = TestOutboxBroker(broker)
    known: list[list[str]] = []

    def look() -> None:
        known.append([each.uri for each in test.fake_client.messages])

    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, outbox: BrokerOfHandler) -> None:
        await outbox.publish(2, topic="bills")
        await outbox.publish(3, "mails")
        look()
        if fails:
            raise ValueError("broken")

    reads(broker, seen, topic="bills", group="mail")

    @broker.subscriber("mails")
    async def mail(body: int) -> None:
        seen.append(body)

    async with test as tested:
        if fails:
            with pytest.raises(ValueError, match="broken"):
                await tested.publish(1, **ORDER)
        else:
            await tested.publish(1, **ORDER)
        look()
        assert test.fake_client.rows == []
    assert known == [["orders"], ["orders"] if fails else ["orders", "bills"]]
    assert sorted(seen) == ([] if fails else [2, 3])


async def test_batch_of_a_transactional_handler_commits(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing", transactional=True, batch=True)
    async def handle(bodies: list[int], outbox: BrokerOfHandler) -> None:
        await outbox.publish(sum(bodies), topic="bills")

    reads(broker, seen, topic="bills", group="mail")
    async with TestOutboxBroker(broker) as tested:
        await tested.publish_batch(1, 2, **ORDER)
    assert seen == [3]


async def test_several_topics_are_delivered(broker: OutboxBroker, seen: list[Any]) -> None:
    reads(broker, seen, topic=["orders", "returns"], notes=lambda body, message: (message.raw_message.queue, body))
    async with TestOutboxBroker(broker) as tested:
        for body, topic in enumerate(("orders", "returns", "letters"), start=1):
            await tested.publish(body, topic=topic, session=fake_session())
    assert seen == [("orders", 1), ("returns", 2)]


async def test_dynamic_subscriber_is_served_without_a_database(broker: OutboxBroker, seen: list[Any]) -> None:
    async with TestOutboxBroker(broker, connect_only=False) as tested:
        subscriber = tested.subscriber(topic="orders", group="billing", persistent=False)

        async def handle(body: int) -> None:
            seen.append(body)

        subscriber(handle)
        await subscriber.start()
        await tested.publish(1, **ORDER)
        await subscriber.stop()
    assert seen == [1]


async def test_dynamic_subscriber_reads_nothing_of_a_real_database(stage: Stage) -> None:
    await stage.publish("real", key="order-1")
    async with TestOutboxBroker(stage.broker, connect_only=False) as tested:
        subscriber = tested.subscriber(topic="orders", group="billing", persistent=False)

        async def handle(body: str) -> None:
            stage.seen.append(body)

        subscriber(handle)
        await subscriber.start()
        members = await stage.sql(f"select member from {stage.log_tables.members.name}")
        await tested.publish("tested", **ORDER)
        await subscriber.stop()
    assert members == []
    assert stage.seen == ["tested"]


async def test_subscribers_of_a_real_database_start_with_the_real_broker(stage: Stage) -> None:
    handle = stage.reads()
    async with TestOutboxBroker(stage.broker, with_real=True):
        await stage.publish(1, key="order-1")
        await handle.wait_call(5.0)
        handle.mock.assert_called_once_with(1)
    await stage.caught_up()


async def test_failing_group_does_not_keep_others_from_a_message(broker: OutboxBroker, seen: list[Any]) -> None:
    for group in ("billing", "mail"):
        reads(broker, seen, 1, group=group, notes=lambda _, __, group=group: group)
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(ValueError, match="broken"):
            await tested.publish(1, **ORDER)
    assert sorted(seen) == ["billing", "mail"]
