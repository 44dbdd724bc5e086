"""Routers: prefixes, nesting, delayed registration, inheritance of options."""

from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Depends

from faststream_outbox import NoRetry, OutboxBroker, OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import InvalidOptionType
from tests.broker.conformance.ways import Seen, Way, answering, failing, noting


async def test_prefixes_add_up_before_the_queue(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    outer, inner = OutboxRouter(prefix="a."), OutboxRouter(prefix="b.")
    inner.publisher("mails")(answering(inner, ["orders", "bills"]))
    noting(inner, seen, "mails")
    outer.include_router(inner)
    broker.include_router(outer, prefix="eu.")
    async with way.running(broker):
        await way.publish(1, "eu.a.b.orders")
        await way.publish(2, "eu.a.b.bills")
        assert sorted(await seen.first(2)) == [2, 3]


async def test_publisher_of_a_router_publishes_with_its_prefix(way: Way, broker: OutboxBroker) -> None:
    router = OutboxRouter(prefix="shop.")
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

    routes = [
        OutboxRoute(handle, "orders", publishers=[OutboxRoutePublisher("bills", headers={"a": "1"})]),
        OutboxRoute(collected, "bills"),
    ]
    broker = way.broker(routers=[OutboxRouter(prefix="shop.", routers=[OutboxRouter(routes)])])
    async with way.running(broker):
        await way.publish(1, "shop.orders")
        assert await seen.first() == [(2, "1")]


async def test_parser_and_decoder_of_a_router_are_used_where_a_subscriber_has_none(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    async def of_router(raw: Any, original: Any) -> Any:
        message = await original(raw)
        message.body = b'"parsed"'
        return message

    async def of_subscriber(raw: Any, original: Any) -> Any:
        return await original(raw)

    async def decoder(message: Any, original: Any) -> Any:
        return [await original(message)]

    router = OutboxRouter(parser=of_router, decoder=decoder)
    noting(router, seen, "bills")
    noting(router, seen, parser=of_subscriber)
    broker.include_router(router)
    async with way.running(broker):
        await way.publish({"a": 1}, "bills")
        assert await seen.first() == [["parsed"]]
        await way.publish(1, "orders")
        assert await seen.first(2) == [["parsed"], [1]]


async def test_middleware_and_dependencies_of_a_router_run_for_its_subscribers_only(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    class Marked(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen("middleware")
            return await call_next(msg)

    async def depended() -> None:
        seen("dependency")

    router = OutboxRouter(middlewares=[Marked], dependencies=[Depends(depended)])
    noting(router, seen)
    noting(broker, seen, "bills")
    broker.include_router(router)
    async with way.running(broker):
        await way.publish("outside", "bills")
        await seen.first(1)
        await way.publish("inside", "orders")
        assert await seen.first(4) == ["outside", "middleware", "dependency", "inside"]


@pytest.mark.parametrize(
    ("of_broker", "of_router", "reason"),
    [
        (AckPolicy.ACK, {"ack_policy": AckPolicy.REJECT_ON_ERROR}, "rejected"),
        (AckPolicy.REJECT_ON_ERROR, {}, "rejected"),
        (AckPolicy.MANUAL, {}, "undecided"),
    ],
)
async def test_ack_policy_is_that_of_the_nearest_place_that_names_one(
    way: Way, of_broker: AckPolicy, of_router: dict[str, Any], reason: str
) -> None:
    inner, outer, broker = OutboxRouter(**of_router), OutboxRouter(), way.broker(ack_policy=of_broker)

    @inner.subscriber("orders", on_undecided="dead")
    async def handle(body: int) -> None:
        if reason != "undecided":
            raise ValueError

    outer.include_router(inner)
    broker.include_router(outer)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.died())["failure_reason"] == reason


async def test_terminal_hook_of_the_broker_hears_of_a_routers_messages(way: Way, seen: Seen) -> None:
    broker = way.broker(on_terminal_failure=lambda claim: seen(claim.queue))
    router = OutboxRouter()
    failing(router, retry_strategy=NoRetry())
    broker.include_router(router)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.died()
    assert seen == ["orders"]


async def test_router_moves_to_the_broker_that_includes_it_last(way: Way, seen: Seen) -> None:
    first, second, router = way.broker(), way.broker(), OutboxRouter()
    noting(router, seen)
    for broker in (first, second, second):
        broker.include_router(router)
    assert len(second.subscribers) == 1
    async with way.running(second):
        await way.publish(1, "orders")
        assert await seen.first() == [1]


def test_something_else_is_no_router() -> None:
    with pytest.raises(InvalidOptionType, match="OutboxRouter"):
        Way("memory").broker().include_router(object())  # type: ignore[arg-type]
