"""Routers with topics: prefixes, routes, nesting, and what a router's subscriber learns from its broker late."""

import pytest
from faststream import AckPolicy
from faststream.exceptions import IncorrectState

from faststream_outbox import ConstantRetry, OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.errors import InvalidMessage
from tests.broker.topics.stage import Stage


async def test_prefixes_are_part_of_the_topic_and_not_of_the_group(stage: Stage) -> None:
    inner, outer = OutboxRouter(prefix="eu."), OutboxRouter(prefix="shop.")
    stage.reads(broker=inner)
    outer.include_router(inner)
    stage.broker.include_router(outer, prefix="my.")
    await stage.play(1, topic="orders")
    await stage.publish(2, topic="my.shop.eu.orders", key="order-1")
    assert await stage.saw(1) == [2]
    await stage.caught_up("billing", "my.shop.eu.orders")


async def test_publisher_of_a_router_has_its_prefix(stage: Stage) -> None:
    router = OutboxRouter(prefix="shop.")
    publisher = router.publisher(topic="orders", key="order-1")
    router.publisher(topic="bills")(stage.reads(broker=router, returns=lambda body: body + 1))
    stage.broker.include_router(router)
    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await publisher.publish(1, session=connection)
    await stage.caught_up(topic="shop.orders")
    assert [row["uri"] for row in await stage.in_log("shop.orders")] == ["shop.orders/order-1"]
    assert [row["body"] for row in await stage.in_log("shop.bills")] == [b"2"]


async def test_routes_take_topics(stage: Stage) -> None:
    async def handle(body: int) -> int:
        return body + 1

    async def bill(body: int) -> None:
        stage.seen.append(body)

    to_bills = OutboxRoutePublisher(topic="bills", key="bill-1")
    routes = [
        OutboxRoute(handle, topic="orders", group="billing", max_workers=2, publishers=[to_bills]),
        OutboxRoute(bill, topic="bills", group="mail"),
    ]
    stage.broker.include_router(OutboxRouter(prefix="shop.", handlers=routes))
    await stage.play(1, topic="shop.orders", key="order-1")
    assert await stage.saw(1) == [2]
    assert [row["uri"] for row in await stage.in_log("shop.bills")] == ["shop.bills/bill-1"]


async def test_router_given_to_the_broker_is_served(stage: Stage) -> None:
    router = OutboxRouter()
    stage.reads(broker=router)
    stage.replace(routers=[router])
    await stage.play(1, key="order-1")
    assert await stage.saw(1) == [1]


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
async def test_policy_of_a_router_holds_for_its_topics(stage: Stage) -> None:
    router = OutboxRouter(ack_policy=AckPolicy.REJECT_ON_ERROR)
    stage.reads(1, broker=router, retry_strategy=ConstantRetry(delay_seconds=1000))
    stage.broker.include_router(router)
    await stage.play(1)
    await stage.has_deferred("parked")


async def test_prefix_that_makes_a_topic_too_long_is_refused_at_the_start(stage: Stage) -> None:
    router = OutboxRouter(prefix="x" * 1000)
    stage.reads(broker=router, topic="y" * 100)
    stage.broker.include_router(router)
    with pytest.raises(InvalidMessage, match="topic"):
        await stage.broker.start()


async def test_router_without_a_broker_says_so() -> None:
    publisher = OutboxRouter().publisher(topic="orders")
    with pytest.raises(IncorrectState):
        await publisher.publish(1)
