"""Publishing: from outside, from handlers, by decorators, by answers."""

import asyncio
from itertools import count
from typing import Any

import pytest
from faststream import Response
from faststream.exceptions import FeatureNotSupportedException

from faststream_outbox import OutboxResponse
from faststream_outbox.annotations import OutboxBroker, OutboxMessage
from tests.broker.conformance.ways import Seen, Way


def _collect(broker: Any, queue: str, seen: Seen) -> None:
    @broker.subscriber(queue)
    async def collected(body: Any, message: OutboxMessage) -> None:
        seen(body, message)


async def test_queue_may_be_the_second_argument(way: Way) -> None:
    async with way.running(way.broker()):
        await way.publish("x", "orders")
        assert [row["queue"] for row in await way.rows()] == ["orders"]


async def test_publish_answers_with_the_id(way: Way) -> None:
    async with way.running(way.broker()):
        number = await way.publish("x", "orders")
        assert [row["id"] for row in await way.rows()] == [number]


async def test_batch_is_published_in_order(way: Way) -> None:
    async with way.running(way.broker()):
        numbers = await way.publish_batch("a", "b", "c", queue="orders")
        assert [(row["id"], row["payload"]) for row in await way.rows()] == list(
            zip(numbers, [b"a", b"b", b"c"], strict=True)
        )


async def test_messages_of_a_batch_have_correlation_ids_of_their_own(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "orders", seen)
    async with way.running(broker):
        await way.publish_batch("a", "b", queue="orders")
        messages = [message for _, message in await seen.first(2)]
    assert len({message.correlation_id for message in messages}) == 2
    assert [message.correlation_id for message in messages] == [message.message_id for message in messages]


async def test_id_generator_makes_correlation_ids(way: Way) -> None:
    numbers = count(1)
    async with way.running(way.broker(id_generator=lambda: f"id-{next(numbers)}")):
        await way.publish("x", "orders")
        await way.publish_batch("a", "b", queue="orders")
        assert [row["headers"]["correlation_id"] for row in await way.rows()] == ["id-1", "id-2", "id-3"]


async def test_publisher_object_publishes(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)
    publisher = broker.publisher("bills", headers={"static": "1", "both": "publisher"}, key="k", priority=2)
    async with way.running(broker):
        await way.publish("bill", caller_connection=publisher, headers={"both": "call"})
        ((body, message),) = await seen.first()
    assert body == "bill"
    assert (message.headers["static"], message.headers["both"]) == ("1", "call")
    assert (message.raw_message.key, message.raw_message.priority) == ("k", 2)


async def test_publisher_decorator_publishes_what_the_handler_returns(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)

    @broker.publisher("bills")
    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body + 1

    async with way.running(broker):
        await way.publish(1, "orders", correlation_id="c1")
        ((body, message),) = await seen.first()
    assert (body, message.correlation_id) == (2, "c1")


async def test_several_decorators_publish_to_each(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)
    _collect(broker, "mails", seen)

    @broker.publisher("bills")
    @broker.publisher("mails")
    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body

    async with way.running(broker):
        await way.publish(1, "orders")
        received = await seen.first(2)
    assert sorted(message.raw_message.queue for _, message in received) == ["bills", "mails"]


async def test_one_publisher_serves_several_handlers(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)
    publisher = broker.publisher("bills")

    @publisher
    @broker.subscriber("orders")
    async def first(body: int) -> str:
        return f"first {body}"

    @publisher
    @broker.subscriber("returns")
    async def second(body: int) -> str:
        return f"second {body}"

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.publish(2, "returns")
        assert sorted(body for body, _ in await seen.first(2)) == ["first 1", "second 2"]


async def test_response_carries_headers_and_correlation_id(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)

    @broker.publisher("bills")
    @broker.subscriber("orders")
    async def handle(body: int) -> Response:
        return Response(body, headers={"a": "1"}, correlation_id="mine")

    async with way.running(broker):
        await way.publish(1, "orders")
        ((body, message),) = await seen.first()
    assert (body, message.headers["a"], message.correlation_id) == (1, "1", "mine")


async def test_outbox_response_goes_to_its_own_queue(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)

    @broker.subscriber("orders")
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", headers={"a": "1"}, key="k")

    async with way.running(broker):
        await way.publish(1, "orders", correlation_id="c1")
        ((body, message),) = await seen.first()
    assert (body, message.headers["a"], message.raw_message.key, message.correlation_id) == (1, "1", "k", "c1")


async def test_answer_goes_to_reply_to(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "answers", seen)

    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body + 1

    async with way.running(broker):
        await way.publish(1, "orders", reply_to="answers", correlation_id="c1")
        ((body, message),) = await seen.first()
    assert (body, message.correlation_id) == (2, "c1")


async def test_without_reply_to_nothing_is_answered(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.empty()


async def test_no_reply_answers_nothing(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", no_reply=True)
    async def handle(body: int) -> int:
        return body

    async with way.running(broker):
        await way.publish(1, "orders", reply_to="answers")
        await way.empty()


async def test_publisher_made_while_the_broker_runs_publishes(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)
    async with way.running(broker):
        publisher = broker.publisher("bills", persistent=False)
        await way.publish("late", caller_connection=publisher)
        ((body, _),) = await seen.first()
    assert body == "late"


async def test_connected_broker_publishes(real: Way) -> None:
    broker = real.broker()
    async with broker, real.transaction() as session:
        await broker.publish("x", "orders", session=session)
    assert [row["payload"] for row in await real.rows()] == [b"x"]


async def test_broker_in_the_context_publishes(way: Way, seen: Seen) -> None:
    broker = way.broker()
    _collect(broker, "bills", seen)

    @broker.subscriber("orders")
    async def handle(body: int, outbox: OutboxBroker) -> None:
        async with way.transaction() as session:
            await outbox.publish(body, "bills", session=session)

    async with way.running(broker):
        await way.publish(1, "orders")
        ((body, _),) = await seen.first()
    assert body == 1


async def test_failing_publisher_fails_the_message(way: Way) -> None:
    broker = way.broker()

    @broker.publisher("bills")
    @broker.subscriber("orders")
    async def handle(body: int) -> Any:
        return Response(body, headers={"bad": object()})

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.attempted())["queue"] == "orders"


async def test_request_is_answered_in_memory(memory: Way) -> None:
    broker = memory.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> Response:
        return Response(body + 1, headers={"a": "1"})

    async with memory.running(broker):
        answer = await broker.request(1, "orders", correlation_id="c1", timeout=30.0)
        assert (await answer.decode(), answer.headers["a"], answer.correlation_id) == (2, "1", "c1")
        assert await memory.rows() == []


async def test_request_through_a_publisher_is_answered_in_memory(memory: Way) -> None:
    broker = memory.broker()
    publisher = broker.publisher("orders")

    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body + 1

    async with memory.running(broker):
        assert await (await publisher.request(1, timeout=30.0)).decode() == 2


async def test_request_that_takes_too_long_is_given_up_in_memory(memory: Way) -> None:
    broker = memory.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        await asyncio.Event().wait()

    async with memory.running(broker):
        with pytest.raises(TimeoutError):
            await broker.request(1, "orders", timeout=0.01)


async def test_request_on_postgresql_is_refused_and_says_why(real: Way) -> None:
    with pytest.raises(FeatureNotSupportedException, match="after your transaction has committed"):
        await real.broker().request(1, "orders")
