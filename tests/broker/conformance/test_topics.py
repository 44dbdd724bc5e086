"""Topics: every group reads everything, in order per key, with retries and parked messages of its own."""

from typing import Any
from uuid import uuid4

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox import OutboxBroker as Broker
from faststream_outbox.annotations import OutboxBroker, OutboxMessage
from faststream_outbox.errors import DuplicateMessage, InvalidMessage, SessionRequired
from tests.broker.conformance.differences import AGAIN, LATE_GROUP, differs
from tests.broker.conformance.ways import Seen, Way, answering, noting

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.02, max_attempts=2)
pytestmark = [pytest.mark.topics, pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")]


def _reads(broker: Any, seen: Seen, group: str = "billing", topic: Any = "orders", **options: Any) -> None:
    """A group that notes everything, and fails on 1 as often as it comes."""

    @broker.subscriber(topic=topic, group=group, **{"retry_strategy": LATER, **options})
    async def handle(body: Any, message: OutboxMessage) -> None:
        seen(group, body)
        if body == 1:
            raise ValueError("broken")


async def test_every_group_reads_every_message(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen, "billing")
    _reads(broker, seen, "mail")
    async with way.running(broker):
        await way.publish(2, topic="orders", key="a")
        await way.publish(3, topic="orders", key="a")
        found = await seen.first(4)
    for group in ("billing", "mail"):
        assert [body for name, body in found if name == group] == [2, 3]


async def test_messages_of_a_key_are_read_in_order(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen, max_workers=4)
    keys = ["a", "b", "c"]
    async with way.running(broker):
        await way.publish_batch(*range(10, 40), topic="orders", keys=[keys[number % 3] for number in range(30)])
        found = [body for _, body in await seen.first(30)]
    for place in range(3):
        mine = [body for body in found if body % 3 == (10 + place) % 3]
        assert mine == sorted(mine)


async def test_failed_message_holds_its_key_and_nothing_else(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen)
    _reads(broker, seen, "mail", ack_policy=AckPolicy.ACK)
    async with way.running(broker):
        await way.publish_to_failing(1, topic="orders", key="a")
        await seen.first(2)
        await way.publish(2, topic="orders", key="a")
        await way.publish(3, topic="orders", key="b")
        await seen.first(5)
    assert sorted(body for group, body in seen if group == "billing") == [1, 3]
    assert sorted(body for group, body in seen if group == "mail") == [1, 2, 3]


@differs(AGAIN)
async def test_failed_message_comes_again_before_its_key_goes_on(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber(topic="orders", group="billing", retry_strategy=SOON)
    async def handle(body: int, message: OutboxMessage) -> None:
        seen(body, message.raw_message.attempts)
        if len(seen) == 1:
            raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, topic="orders", key="a")
        await way.publish(2, topic="orders", key="a")
        assert await seen.first(3) == [(1, 0), (1, 1), (2, 0)]


@differs(AGAIN)
async def test_message_that_fails_too_often_is_parked_and_its_key_goes_on(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen, retry_strategy=SOON)
    async with way.running(broker):
        await way.publish_to_failing(1, topic="orders", key="a")
        await way.publish(2, topic="orders", key="a")
        assert [body for _, body in await seen.first(3)] == [1, 1, 2]
        await way.becomes_parked("billing", "orders", (1, "ValueError", 2))


@pytest.mark.parametrize(
    ("options", "handled"),
    [
        ({"ack_policy": AckPolicy.REJECT_ON_ERROR}, [1, 2, 3]),
        ({"retry_strategy": NoRetry(), "on_dead": "block"}, [1, 3]),
    ],
)
async def test_parked_message_lets_its_key_go_on_or_holds_it_where_asked(
    way: Way, broker: Broker, seen: Seen, options: dict[str, Any], handled: list[int]
) -> None:
    _reads(broker, seen, **options)
    async with way.running(broker):
        await way.publish_to_failing(1, topic="orders", key="a")
        await way.becomes_parked("billing", "orders", (1, "ValueError", 1))
        await way.publish(2, topic="orders", key="a")
        await way.publish(3, topic="orders", key="b")
        assert sorted(body for _, body in await seen.first(len(handled))) == handled
    assert len(seen) == len(handled)


async def test_name_with_parts_is_read_from_above(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen, "all", "shop")
    _reads(broker, seen, "below", "shop/")
    _reads(broker, seen, "two", ["shop/orders", "bank"])
    async with way.running(broker):
        await way.publish("at", topic="shop")
        await way.publish("below", topic="shop/orders", key="k")
        await way.publish("beside", topic="shopping")
        await way.publish("bank", topic="bank")
        await seen.first(5)
    assert sorted(seen) == [("all", "at"), ("all", "below"), ("below", "below"), ("two", "bank"), ("two", "below")]


async def test_id_that_is_there_already_is_refused_or_left_out(way: Way, broker: Broker) -> None:
    known = uuid4()
    async with way.running(broker):
        async with way.open_session() as session:
            await broker.publish(2, topic="orders", message_id=known, session=session)
            await session.rollback()
        assert await way.publish(2, topic="orders", message_id=known) is not None
        with pytest.raises(DuplicateMessage):
            await way.publish(3, topic="orders", message_id=known)
        assert await way.publish(3, topic="orders", message_id=known, on_duplicate="ignore") is None


async def test_what_only_queues_can_do_is_refused(way: Way, broker: Broker) -> None:
    async with way.running(broker):
        for options in ({"priority": 1}, {"timer_id": "t"}):
            with pytest.raises(InvalidMessage, match="topic takes no"):
                await way.publish(2, topic="orders", **options)
        with pytest.raises(SessionRequired):
            await broker.publish(2, topic="orders")


async def test_message_carries_its_envelope(way: Way, broker: Broker, seen: Seen) -> None:
    known = uuid4()

    def note(body: int, message: Any) -> Any:
        raw = message.raw_message
        return raw.key, raw.uri, message.headers["tenant"], message.correlation_id, message.message_id

    noting(broker, seen, topic="orders", group="billing", note=note)
    async with way.running(broker):
        await way.publish(2, topic="orders", key="a/b", headers={"tenant": "x"}, correlation_id="c", message_id=known)
        assert await seen.first() == [("a/b", "orders/a%2Fb", "x", "c", str(known))]


async def test_result_of_a_handler_goes_to_its_publisher_and_to_who_asked(way: Way, broker: Broker, seen: Seen) -> None:
    broker.publisher(topic="bills", key="k")(answering(broker, topic="orders", group="billing"))
    noting(broker, seen, "answers", note=lambda body, message: ("answer", body, message.correlation_id))
    noting(
        broker, seen, topic="bills", group="mail", note=lambda body, message: ("bill", body, message.raw_message.key)
    )
    async with way.running(broker):
        await way.publish(2, topic="orders", reply_to="answers", correlation_id="c")
        assert sorted(await seen.first(2)) == [("answer", 3, "c"), ("bill", 3, "k")]


async def test_what_a_transactional_handler_publishes_comes_with_its_commit(
    way: Way, broker: Broker, seen: Seen
) -> None:
    @broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(body, "mails")
        await outbox.publish(body, topic="bills")
        if body == 1:
            raise ValueError("broken")

    noting(broker, seen, "mails", note=lambda body, message: ("mail", body))
    noting(broker, seen, topic="bills", group="mail", note=lambda body, message: ("bill", body))
    async with way.running(broker):
        await way.publish_to_failing(1, topic="orders", key="a")
        await way.publish(2, topic="orders", key="b")
        assert sorted(await seen.first(2)) == [("bill", 2), ("mail", 2)]
        await way.empty()
    assert len(seen) == 2


async def test_batch_gets_lists(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int]) -> None:
        for body in bodies:
            seen(body)

    async with way.running(broker):
        await way.publish_batch(2, 3, 4, topic="orders", key="a")
        assert await seen.first(3) == [2, 3, 4]


async def test_guilty_message_of_a_batch_fails_alone(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber(topic="orders", group="billing", batch=True, retry_strategy=NoRetry())
    async def handle(bodies: list[int]) -> None:
        if 1 in bodies:
            raise ValueError("broken")
        for body in bodies:
            seen(body)

    async with way.running(broker):
        try:
            await way.publish_batch(2, 1, 3, topic="orders", keys=["a", "b", "c"])
        except ValueError:
            assert way.is_immediate
        assert sorted(await seen.first(2)) == [2, 3]
        await way.becomes_parked("billing", "orders", (1, "ValueError", 1))


async def test_message_is_published_without_a_loop(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen)
    async with way.running(broker):
        with way.open_sync_session() as session, session.begin():
            assert isinstance(broker.publish_sync(2, topic="orders", session=session), int)
        assert await seen.first() == [("billing", 2)]


@differs(LATE_GROUP)
async def test_group_reads_what_was_there_before_it(way: Way, broker: Broker, seen: Seen) -> None:
    def noting_as(group: str) -> Any:
        async def handle(body: int) -> None:
            seen(group, body)

        return handle

    async with way.running(broker):
        await way.publish_batch(2, 3, topic="orders")
        kept = []
        for group, start in (("old", "earliest"), ("new", "latest")):
            subscriber = broker.subscriber(topic="orders", group=group, start=start, persistent=False)  # type: ignore[arg-type]
            subscriber(noting_as(group))
            await subscriber.start()
            kept.append(subscriber)
        assert await seen.first(2) == [("old", 2), ("old", 3)]
        await way.publish(4, topic="orders")
        assert sorted((await seen.first(4))[2:]) == [("new", 4), ("old", 4)]


@differs(LATE_GROUP)
async def test_group_reads_everything_again(way: Way, broker: Broker, seen: Seen) -> None:
    _reads(broker, seen)
    async with way.running(broker):
        await way.publish_batch(2, 3, topic="orders", key="a")
        await seen.first(2)
        await way.read_again("billing", "orders")
        assert [body for _, body in await seen.first(4)] == [2, 3, 2, 3]


async def test_renderer_of_errors_and_recorder_of_metrics_are_told_what_happens(way: Way, seen: Seen) -> None:
    heard: list[str] = []
    broker = way.broker(
        last_exception_renderer=lambda error: f"<{error}>", metrics_recorder=lambda name, tags: heard.append(name)
    )
    _reads(broker, seen, retry_strategy=NoRetry())
    expected = ["acked", *["dispatched"] * 2, "dlq_written", "nacked_terminal", *["published"] * 2]

    async def the_error_is_rendered() -> bool:
        return [each.error_message for each in await way.parked("billing", "orders")] == ["<broken>"]

    async with way.running(broker):
        await way.publish(2, topic="orders")
        await way.publish_to_failing(1, topic="orders")
        await way.eventually(the_error_is_rendered)
        await way.eventually(lambda: sorted(heard) == expected)


async def test_two_brokers_of_one_log_share_their_topics(way: Way, seen: Seen) -> None:
    first, second = way.broker(), way.broker()
    _reads(second, seen)
    _reads(first, seen, "mail")
    async with way.running(first, second):
        await way.publish(2, topic="orders")
        assert sorted(await seen.first(2)) == [("billing", 2), ("mail", 2)]
