"""Publishing: from outside, from handlers, by decorators, by answers."""

import asyncio
from itertools import count
from typing import Any

import pytest
from faststream import Response
from faststream.exceptions import FeatureNotSupportedException

from faststream_outbox import OutboxBroker, OutboxResponse
from tests.broker.conformance.ways import Seen, Way, answering, noting


def _with_message(body: Any, message: Any) -> Any:
    return body, message


async def test_publishing_answers_with_ids_in_order(way: Way, broker: OutboxBroker) -> None:
    async with way.running(broker):
        numbers = [await way.publish("x", "orders"), *await way.publish_batch("a", "b", "c", queue="orders")]
        found = [(row["id"], row["payload"]) for row in await way.rows()]
    assert found == list(zip(numbers, [b"x", b"a", b"b", b"c"], strict=True))


async def test_messages_of_a_batch_have_correlation_ids_of_their_own(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    noting(broker, seen, note=_with_message)
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


async def test_publisher_object_publishes(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "bills", note=_with_message)
    publisher = broker.publisher("bills", headers={"static": "1", "both": "publisher"}, key="k", priority=2)
    async with way.running(broker):
        await way.publish("bill", caller_connection=publisher, headers={"both": "call"})
        ((body, message),) = await seen.first()
    assert body == "bill"
    assert (message.headers["static"], message.headers["both"]) == ("1", "call")
    assert (message.raw_message.key, message.raw_message.priority) == ("k", 2)


async def test_several_decorators_publish_to_each_what_the_handler_returns(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    for queue in ("bills", "mails"):
        noting(
            broker, seen, queue, note=lambda body, message: (message.raw_message.queue, body, message.correlation_id)
        )
    broker.publisher("bills")(broker.publisher("mails")(answering(broker)))
    async with way.running(broker):
        await way.publish(1, "orders", correlation_id="c1")
        assert sorted(await seen.first(2)) == [("bills", 2, "c1"), ("mails", 2, "c1")]


async def test_one_publisher_serves_several_handlers(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "bills")
    publisher = broker.publisher("bills")
    for queue in ("orders", "returns"):
        publisher(answering(broker, queue))
    async with way.running(broker):
        await way.publish(1, "orders")
        await way.publish(2, "returns")
        assert sorted(await seen.first(2)) == [2, 3]


async def test_response_carries_headers_and_correlation_id(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "bills", note=lambda body, message: (body, message.headers["a"], message.correlation_id))

    @broker.publisher("bills")
    @broker.subscriber("orders")
    async def handle(body: int) -> Response:
        return Response(body, headers={"a": "1"}, correlation_id="mine")

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [(1, "1", "mine")]


@pytest.mark.parametrize("is_sync", [False, True])
async def test_outbox_response_goes_to_its_own_queue(
    way: Way, broker: OutboxBroker, seen: Seen, *, is_sync: bool
) -> None:
    def note(body: int, message: Any) -> Any:
        return body, message.headers["a"], message.raw_message.key, message.correlation_id

    async def handle(body: int) -> OutboxResponse:
        return handle_at_once(body)

    def handle_at_once(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", headers={"a": "1"}, key="k")

    noting(broker, seen, "bills", note=note)
    broker.subscriber("orders")(handle_at_once if is_sync else handle)
    async with way.running(broker):
        await way.publish(1, "orders", correlation_id="c1")
        assert await seen.first() == [(1, "1", "k", "c1")]
        await way.empty()


async def test_answer_goes_to_reply_to(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "answers", note=lambda body, message: (body, message.correlation_id))
    answering(broker)
    async with way.running(broker):
        await way.publish(1, "orders", reply_to="answers", correlation_id="c1")
        assert await seen.first() == [(2, "c1")]


@pytest.mark.parametrize(("no_reply", "reply_to"), [(False, ""), (True, "answers")])
async def test_nothing_is_answered_where_nobody_asked_or_nobody_is_to_answer(
    way: Way, broker: OutboxBroker, *, no_reply: bool, reply_to: str
) -> None:
    answering(broker, no_reply=no_reply)
    async with way.running(broker):
        await way.publish(1, "orders", reply_to=reply_to)
        await way.empty()


async def test_publisher_made_while_the_broker_runs_publishes(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, "bills")
    async with way.running(broker):
        publisher = broker.publisher("bills", persistent=False)
        await way.publish("late", caller_connection=publisher)
        assert await seen.first() == ["late"]


async def test_request_is_answered_in_memory(memory: Way) -> None:
    broker = memory.broker()
    publisher = broker.publisher("orders")

    @broker.subscriber("orders")
    async def handle(body: int) -> Response:
        return Response(body + 1, headers={"a": "1"})

    async with memory.running(broker):
        answer = await broker.request(1, "orders", correlation_id="c1", timeout=30.0)
        assert (await answer.decode(), answer.headers["a"], answer.correlation_id) == (2, "1", "c1")
        assert await (await publisher.request(2, timeout=30.0)).decode() == 3
        assert await memory.rows() == []


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
