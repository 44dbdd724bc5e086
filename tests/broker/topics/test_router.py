"""Routers with topics: prefixes, routes, nesting, and what a router's subscriber learns from its broker late."""

import pytest
from faststream import AckPolicy
from faststream.exceptions import IncorrectState

from faststream_outbox import ConstantRetry, NoRetry, OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.errors import InvalidMessage
from tests.broker.topics.stage import Stage


async def test_prefixes_are_part_of_the_topic(stage: Stage) -> None:
    inner, outer = OutboxRouter(prefix="eu."), OutboxRouter(prefix="shop.")

    @inner.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    outer.include_router(inner)
    stage.broker.include_router(outer)
    await stage.broker.start()
    await stage.publish(1, topic="orders")
    await stage.publish(2, topic="shop.eu.orders", key="order-1")
    assert await stage.saw(1) == [2]
    await stage.caught_up(topic="shop.eu.orders")


async def test_prefix_of_including_is_part_of_the_topic(stage: Stage) -> None:
    router = OutboxRouter()

    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    stage.broker.include_router(router, prefix="shop.")
    await stage.broker.start()
    await stage.publish(1, topic="shop.orders")
    assert await stage.saw(1) == [1]


async def test_prefix_is_not_part_of_the_group(stage: Stage) -> None:
    router = OutboxRouter(prefix="shop.")

    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None: ...

    stage.broker.include_router(router)
    await stage.broker.start()
    await stage.shared_by(1, "billing")


async def test_publisher_of_a_router_has_its_prefix(stage: Stage) -> None:
    router = OutboxRouter(prefix="shop.")
    publisher = router.publisher(topic="orders", key="order-1")

    @router.publisher(topic="bills")
    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body + 1

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

    router = OutboxRouter(
        prefix="shop.",
        handlers=[
            OutboxRoute(
                handle,
                topic="orders",
                group="billing",
                max_workers=2,
                publishers=[OutboxRoutePublisher(topic="bills", key="bill-1")],
            ),
            OutboxRoute(bill, topic="bills", group="mail"),
        ],
    )
    stage.broker.include_router(router)
    await stage.broker.start()
    await stage.publish(1, topic="shop.orders", key="order-1")
    assert await stage.saw(1) == [2]
    assert [row["uri"] for row in await stage.in_log("shop.bills")] == ["shop.bills/bill-1"]


async def test_router_given_to_the_broker_is_served(stage: Stage) -> None:
    router = OutboxRouter()

    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    broker = stage.replace(routers=[router])
    await broker.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(1) == [1]


async def test_routers_of_queues_and_topics_live_together(stage: Stage) -> None:
    router = OutboxRouter(prefix="shop.")

    @router.subscriber(topic="orders", group="billing")
    async def of_topic(body: int) -> None:
        stage.seen.append(("topic", body))

    @router.subscriber("orders")
    async def of_queue(body: int) -> None:
        stage.seen.append(("queue", body))

    stage.broker.include_router(router)
    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="shop.orders", session=connection)
        await stage.broker.publish(2, "shop.orders", session=connection)
    assert sorted(await stage.saw(2)) == [("queue", 2), ("topic", 1)]


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
async def test_policy_of_a_router_holds_for_its_topics(stage: Stage) -> None:
    router = OutboxRouter(ack_policy=AckPolicy.REJECT_ON_ERROR)

    @router.subscriber(topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=1000))
    async def handle(body: int) -> None:
        raise ValueError

    stage.broker.include_router(router)
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("parked")


async def test_options_of_a_route_reach_the_engine(stage: Stage) -> None:
    async def handle(body: int) -> None:
        stage.seen.append(body)
        raise ValueError

    route = OutboxRoute(handle, topic="orders", group="billing", retry_strategy=NoRetry(), on_dead="block")
    stage.broker.include_router(OutboxRouter(handlers=[route]))
    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    await stage.has_deferred("parked", "deferred")
    assert stage.seen == [1]


async def test_prefix_that_makes_a_topic_too_long_is_refused_at_the_start(stage: Stage) -> None:
    router = OutboxRouter(prefix="x" * 1000)

    @router.subscriber(topic="y" * 100, group="billing")
    async def handle(body: int) -> None: ...

    stage.broker.include_router(router)
    with pytest.raises(InvalidMessage, match="topic"):
        await stage.broker.start()


async def test_router_without_a_broker_says_so() -> None:
    router = OutboxRouter()
    publisher = router.publisher(topic="orders")
    with pytest.raises(IncorrectState):
        await publisher.publish(1)
