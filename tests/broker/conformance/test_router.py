"""Routers: prefixes, nesting, delayed registration, inheritance of options."""

from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Depends

from faststream_outbox import NoRetry, OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import InvalidOptionType
from tests.broker.conformance.ways import Seen, Way


async def test_prefix_is_put_before_the_queue(way: Way, seen: Seen) -> None:
    broker, router = way.broker(), OutboxRouter(prefix="shop.")

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, "shop.orders")
        assert await seen.first() == [1]


async def test_prefix_given_at_inclusion_comes_first(way: Way, seen: Seen) -> None:
    broker, router = way.broker(), OutboxRouter(prefix="shop.")

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    broker.include_router(router, prefix="eu.")
    async with way.running(broker):
        await way.publish(1, "eu.shop.orders")
        assert await seen.first() == [1]


async def test_prefixes_of_nested_routers_add_up(way: Way, seen: Seen) -> None:
    broker, outer, inner = way.broker(), OutboxRouter(prefix="a."), OutboxRouter(prefix="b.")

    @inner.subscriber(["orders", "bills"])
    @inner.publisher("mails")
    async def handle(body: int) -> int:
        return body + 1

    @inner.subscriber("mails")
    async def collected(body: int) -> None:
        seen(body)

    outer.include_router(inner)
    broker.include_router(outer)
    async with way.running(broker):
        await way.publish(1, "a.b.orders")
        await way.publish(2, "a.b.bills")
        assert sorted(await seen.first(2)) == [2, 3]


async def test_publisher_of_a_router_publishes_with_its_prefix(way: Way) -> None:
    broker, router = way.broker(), OutboxRouter(prefix="shop.")
    publisher = router.publisher("orders")
    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, caller_connection=publisher)
        assert publisher.queue == "shop.orders"


async def test_delayed_route_consumes_and_publishes(way: Way, seen: Seen) -> None:
    async def handle(body: int) -> int:
        return body + 1

    async def collected(body: int, message: OutboxMessage) -> None:
        seen(body, message.headers["a"])

    router = OutboxRouter(
        prefix="shop.",
        handlers=[
            OutboxRoute(handle, "orders", publishers=[OutboxRoutePublisher("bills", headers={"a": "1"})]),
            OutboxRoute(collected, "bills"),
        ],
    )
    broker = way.broker(routers=[router])
    async with way.running(broker):
        await way.publish(1, "shop.orders")
        assert await seen.first() == [(2, "1")]


async def test_handlers_may_be_the_first_argument(way: Way, seen: Seen) -> None:
    async def handle(body: int) -> None:
        seen(body)

    broker = way.broker(routers=[OutboxRouter([OutboxRoute(handle, "orders")])])
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]


async def test_parser_of_a_router_is_used(way: Way, seen: Seen) -> None:
    async def parser(raw: Any, original: Any) -> Any:
        message = await original(raw)
        message.body = b'"parsed"'
        return message

    broker = way.broker()
    router = OutboxRouter(parser=parser)

    @router.subscriber("orders")
    async def handle(body: str) -> None:
        seen(body)

    broker.include_router(router)
    async with way.running(broker):
        await way.publish({"a": 1}, "orders")
        assert await seen.first() == ["parsed"]


async def test_parser_of_a_subscriber_overrides_the_routers(way: Way, seen: Seen) -> None:
    async def of_router(raw: Any, original: Any) -> Any:
        raise AssertionError

    async def of_subscriber(raw: Any, original: Any) -> Any:
        return await original(raw)

    broker = way.broker()
    router = OutboxRouter(parser=of_router)

    @router.subscriber("orders", parser=of_subscriber)
    async def handle(body: int) -> None:
        seen(body)

    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]


async def test_decoder_of_a_router_is_used(way: Way, seen: Seen) -> None:
    async def decoder(message: Any, original: Any) -> Any:
        return [await original(message)]

    broker = way.broker()
    router = OutboxRouter(decoder=decoder)

    @router.subscriber("orders")
    async def handle(body: list[int]) -> None:
        seen(body)

    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [[1]]


async def test_middleware_of_a_router_runs_for_its_subscribers_only(way: Way, seen: Seen) -> None:
    class Marked(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen("middleware")
            return await call_next(msg)

    broker = way.broker()
    router = OutboxRouter(middlewares=[Marked])

    @router.subscriber("orders")
    async def inside(body: int) -> None:
        seen("inside")

    @broker.subscriber("bills")
    async def outside(body: int) -> None:
        seen("outside")

    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, "bills")
        await seen.first(1)
        await way.publish(1, "orders")
        assert await seen.first(3) == ["outside", "middleware", "inside"]


async def test_ack_policy_of_a_router_holds_for_its_subscribers(way: Way) -> None:
    broker = way.broker(ack_policy=AckPolicy.ACK)
    router = OutboxRouter(ack_policy=AckPolicy.REJECT_ON_ERROR)

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        raise ValueError

    broker.include_router(router)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.died())["failure_reason"] == "rejected"


@pytest.mark.parametrize("policy", [AckPolicy.MANUAL, AckPolicy.REJECT_ON_ERROR])
async def test_routers_subscriber_without_a_policy_takes_the_brokers(way: Way, policy: AckPolicy) -> None:
    inner, outer = OutboxRouter(), OutboxRouter()

    @inner.subscriber("orders", on_undecided="dead")
    async def handle(body: int) -> None:
        if policy is not AckPolicy.MANUAL:
            raise ValueError

    outer.include_router(inner)
    broker = way.broker(ack_policy=policy)
    broker.include_router(outer)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        reason = "undecided" if policy is AckPolicy.MANUAL else "rejected"
        assert (await way.died())["failure_reason"] == reason


async def test_terminal_hook_of_the_broker_hears_of_a_routers_messages(way: Way, seen: Seen) -> None:
    broker = way.broker(on_terminal_failure=lambda claim: seen(claim.queue))
    router = OutboxRouter()

    @router.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        raise ValueError

    broker.include_router(router)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.died()
    assert seen == ["orders"]


async def test_dependencies_of_a_router_run(way: Way, seen: Seen) -> None:
    async def depended() -> None:
        seen("dependency")

    broker = way.broker()
    router = OutboxRouter(dependencies=[Depends(depended)])

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        seen("handler")

    broker.include_router(router)
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first(2) == ["dependency", "handler"]


async def test_router_is_included_once_however_often(way: Way, seen: Seen) -> None:
    broker, router = way.broker(), OutboxRouter()

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    broker.include_router(router)
    broker.include_router(router)
    assert len(broker.subscribers) == 1


async def test_router_moves_to_the_broker_that_includes_it_last(way: Way, seen: Seen) -> None:
    first, second, router = way.broker(), way.broker(), OutboxRouter()

    @router.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    first.include_router(router)
    second.include_router(router)
    async with way.running(second):
        await way.publish(1, "orders")
        assert await seen.first() == [1]


async def test_something_else_is_no_router(way: Way) -> None:
    with pytest.raises(InvalidOptionType, match="OutboxRouter"):
        way.broker().include_router(object())  # type: ignore[arg-type]
