"""Topics under the test broker: handlers run at once, once for each group, and their errors reach the test."""

from typing import Any

import pytest
from faststream import Response
from sqlalchemy import MetaData

from faststream_outbox import NoRetry, OutboxBroker, OutboxResponse, OutboxRouter, TestOutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage, OutboxSession
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.log import make_log_tables
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

ORDER: dict[str, Any] = {"topic": "orders", "session": fake_session()}


@pytest.fixture
def broker() -> OutboxBroker:
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=make_outbox_table(metadata), log_tables=log_tables, logger=None)


@pytest.fixture
def seen() -> list[Any]:
    return []


async def test_every_group_handles_a_message_once(broker: OutboxBroker) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def bill(body: dict[str, int]) -> None: ...

    @broker.subscriber(topic="orders", group="mail")
    async def mail(body: dict[str, int]) -> None: ...

    @broker.subscriber("orders")
    async def of_queue(body: dict[str, int]) -> None: ...

    async with TestOutboxBroker(broker) as tested:
        await tested.publish({"id": 1}, key="order-1", **ORDER)
        assert bill.mock is not None
        assert mail.mock is not None
        assert of_queue.mock is not None
        bill.mock.assert_called_once_with({"id": 1})
        mail.mock.assert_called_once_with({"id": 1})
        of_queue.mock.assert_not_called()


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
async def test_two_members_of_a_group_handle_a_message_once(broker: OutboxBroker, seen: list[Any]) -> None:
    for _ in range(2):

        @broker.subscriber(topic="orders", group="billing")
        async def handle(body: int) -> None:
            seen.append(body)

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, **ORDER)
    assert seen == [1]


async def test_queue_of_the_topics_name_is_something_else(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        seen.append(body)

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, "orders", session=fake_session())
        await tested.publish(2, topic="others", session=fake_session())
    assert seen == []


async def test_what_a_handler_raises_reaches_the_test(broker: OutboxBroker) -> None:
    @broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(ValueError, match="broken"):
            await tested.publish(1, **ORDER)


async def test_handler_sees_key_headers_and_ids(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int, message: OutboxMessage) -> None:
        raw = message.raw_message
        seen.append((raw.queue, raw.key, message.headers["tenant"], message.correlation_id))

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, key="order-1", headers={"tenant": "acme"}, correlation_id="c-1", **ORDER)
    assert seen == [("orders", "order-1", "acme", "c-1")]


async def test_messages_are_kept_for_the_test_to_see(broker: OutboxBroker) -> None:
    test = TestOutboxBroker(broker)
    async with test as tested:
        positions = [await tested.publish(number, key=f"order-{number}", **ORDER) for number in range(2)]
        assert test.fake_client is not None
        kept = test.fake_client.messages
        assert [(each.uri, each.position) for each in kept] == [("orders/order-0", 1), ("orders/order-1", 2)]
        assert positions == [1, 2]
        assert test.fake_client.rows == []


async def test_batch_subscriber_gets_what_is_published_together(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int], batch: OutboxBatchMessage) -> None:
        seen.append((bodies, [message.raw_message.key for message in batch.messages]))

    async with TestOutboxBroker(broker) as tested:
        assert await tested.publish_batch(1, 2, keys=["a", "b"], **ORDER) == [1, 2]
    assert seen == [([1, 2], ["a", "b"])]


async def test_publisher_is_called_with_what_a_handler_returns(broker: OutboxBroker) -> None:
    publisher = broker.publisher(topic="bills", key="bill-1")

    @publisher
    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body + 1

    test = TestOutboxBroker(broker)
    async with test as tested:
        await tested.publish(1, **ORDER)
        assert publisher.mock is not None
        publisher.mock.assert_called_once_with(2)
        assert test.fake_client is not None
        assert [each.uri for each in test.fake_client.messages] == ["orders", "bills/bill-1"]


async def test_publisher_with_a_subscriber_reaches_it(broker: OutboxBroker) -> None:
    publisher = broker.publisher(topic="bills")

    @broker.subscriber(topic="bills", group="mail")
    async def mail(body: int) -> None: ...

    async with TestOutboxBroker(broker):
        await publisher.publish(1, session=fake_session())
        assert mail.mock is not None
        mail.mock.assert_called_once_with(1)
        assert publisher.mock is not None
        publisher.mock.assert_called_once_with(1)


async def test_publishers_of_a_queue_and_a_topic_of_one_name_are_told_apart(broker: OutboxBroker) -> None:
    to_topic, to_queue = broker.publisher(topic="bills"), broker.publisher("bills")
    async with TestOutboxBroker(broker):
        await to_topic.publish(1, session=fake_session())
        await to_queue.publish(2, session=fake_session())
        assert to_topic.mock is not None
        assert to_queue.mock is not None
        to_topic.mock.assert_called_once_with(1)
        to_queue.mock.assert_called_once_with(2)


async def test_prefixed_publisher_is_called(broker: OutboxBroker) -> None:
    router = OutboxRouter(prefix="shop.")
    publisher = router.publisher(topic="bills")

    @publisher
    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body

    broker.include_router(router)
    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, topic="shop.orders", session=fake_session())
        assert publisher.mock is not None
        publisher.mock.assert_called_once_with(1)


@pytest.mark.parametrize("session", [None, fake_session()], ids=["no session", "session"])
async def test_response_reaches_its_topic(broker: OutboxBroker, seen: list[Any], session: Any) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body + 1, topic="bills", key="bill-1", session=session)

    @broker.subscriber(topic="bills", group="mail")
    async def mail(body: int, message: OutboxMessage) -> None:
        seen.append((body, message.raw_message.key))

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, **ORDER)
    assert seen == [(2, "bill-1")]


async def test_answer_goes_to_reply_to(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> Response:
        return Response(body + 1)

    @broker.subscriber("answers")
    async def answered(body: int) -> None:
        seen.append(body)

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, reply_to="answers", **ORDER)
    assert seen == [2]


async def test_what_a_transactional_handler_publishes_is_there_after_its_commit(
    broker: OutboxBroker, seen: list[Any]
) -> None:
    test = TestOutboxBroker(broker)

    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: BrokerOfHandler) -> None:
        await outbox.publish(2, topic="bills")
        await outbox.publish(3, "mails")
        assert test.fake_client is not None
        seen.append([each.uri for each in test.fake_client.messages])

    @broker.subscriber(topic="bills", group="mail")
    async def bill(body: int) -> None:
        seen.append(body)

    @broker.subscriber("mails")
    async def mail(body: int) -> None:
        seen.append(body)

    async with test as tested:
        await tested.publish(1, **ORDER)
        assert test.fake_client is not None
        assert [each.uri for each in test.fake_client.messages] == ["orders", "bills"]
    assert seen[0] == ["orders"]
    assert sorted(seen[1:]) == [2, 3]


async def test_what_a_failing_transactional_handler_publishes_is_gone(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, outbox: BrokerOfHandler) -> None:
        await outbox.publish(2, topic="bills")
        await outbox.publish(3, "mails")
        raise ValueError("broken")

    @broker.subscriber(topic="bills", group="mail")
    async def bill(body: int) -> None:
        seen.append(body)

    test = TestOutboxBroker(broker)
    async with test as tested:
        with pytest.raises(ValueError, match="broken"):
            await tested.publish(1, **ORDER)
        assert test.fake_client is not None
        assert [each.uri for each in test.fake_client.messages] == ["orders"]
        assert test.fake_client.rows == []
    assert seen == []


async def test_batch_of_a_transactional_handler_commits(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.subscriber(topic="orders", group="billing", transactional=True, batch=True)
    async def handle(bodies: list[int], outbox: BrokerOfHandler) -> None:
        await outbox.publish(sum(bodies), topic="bills")

    @broker.subscriber(topic="bills", group="mail")
    async def bill(body: int) -> None:
        seen.append(body)

    async with TestOutboxBroker(broker) as tested:
        await tested.publish_batch(1, 2, **ORDER)
    assert seen == [3]


async def test_loops_run_beside_topics(broker: OutboxBroker, seen: list[Any]) -> None:
    @broker.publisher("mails")
    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int) -> int:
        return body + 1

    @broker.publisher(topic="sent")
    @broker.subscriber("mails")
    async def mail(body: int) -> int:
        return body + 1

    @broker.subscriber(topic="sent", group="archive")
    async def archive(body: int) -> None:
        seen.append(body)

    async with TestOutboxBroker(broker, run_loops=True) as tested:
        await tested.publish(1, **ORDER)
        await eventually(lambda: seen == [3])


async def test_several_brokers_share_what_is_published(broker: OutboxBroker, seen: list[Any]) -> None:
    metadata = MetaData()
    outbox, log = make_outbox_table(metadata), make_log_tables(metadata, "outbox_log")
    other = OutboxBroker(outbox_table=outbox, log_tables=log, logger=None)

    @other.subscriber(topic="orders", group="mail")
    async def mail(body: int) -> None:
        seen.append(body)

    async with TestOutboxBroker(broker, other):
        await broker.publish(1, **ORDER)
    assert seen == [1]


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
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    async with TestOutboxBroker(stage.broker, with_real=True):
        await stage.publish(1, key="order-1")
        await handle.wait_call(5.0)
        assert handle.mock is not None
        handle.mock.assert_called_once_with(1)
    await stage.caught_up()


async def test_failing_group_does_not_keep_others_from_a_message(broker: OutboxBroker, seen: list[Any]) -> None:
    def register(group: str) -> None:
        @broker.subscriber(topic="orders", group=group)
        async def handle(body: int) -> None:
            seen.append(group)
            raise ValueError(f"broken {group}")

    register("billing")
    register("mail")
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(ValueError, match=r"broken (billing|mail)"):
            await tested.publish(1, **ORDER)
    assert sorted(seen) == ["billing", "mail"]
