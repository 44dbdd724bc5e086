"""Middlewares: in which order, around what, and what they do about exceptions."""

from typing import Any

import pytest
from faststream import BaseMiddleware, ExceptionMiddleware

from faststream_outbox import OutboxBroker, OutboxResponse, OutboxRouter
from tests.broker.conformance.ways import Seen, Way, failing, noting


def _telling(name: str, seen: Seen) -> type[BaseMiddleware]:
    def tell(raw: Any, what: str) -> None:
        # What a publisher of the handler publishes is received in its turn; that is another story.
        if raw is not None and raw.queue == "orders":
            seen(f"{name} {what}")

    class Telling(BaseMiddleware):
        async def on_receive(self) -> None:
            tell(self.msg, "receives")

        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            tell(self.msg, "consumes")
            result = await call_next(msg)
            tell(self.msg, "has consumed")
            return result

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            tell(self.msg, "publishes")
            return await call_next(cmd)

        async def after_processed(self, *error: Any) -> bool | None:
            tell(self.msg, "has processed")
            return await super().after_processed(*error)

    return Telling


async def test_middlewares_run_from_the_outside_in_and_back(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    router = OutboxRouter(middlewares=[_telling("router", seen)])

    @router.subscriber("orders")
    @router.publisher("nobody")
    async def handle(body: int) -> int:
        seen("handler")
        return body

    broker.include_router(router)
    # One that is added later runs too.
    broker.add_middleware(_telling("broker", seen))
    async with way.running(broker):
        await way.publish(1, "orders")
        assert (await seen.first(11))[:11] == [
            "broker receives",
            "router receives",
            "broker consumes",
            "router consumes",
            "handler",
            "router has consumed",
            "broker has consumed",
            "broker publishes",
            "router publishes",
            "router has processed",
            "broker has processed",
        ]


async def test_middleware_changes_what_the_handler_gets_and_what_is_published(way: Way, seen: Seen) -> None:
    class Changing(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            msg.body = b"2"
            return await call_next(msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            if len(cmd.batch_bodies) == 1:
                cmd.body = f"{cmd.body}!"
            else:
                cmd.batch_bodies = [f"{body}!" for body in cmd.batch_bodies]
            cmd.headers = {"a": "1"}
            return await call_next(cmd)

    broker = way.broker(middlewares=[Changing])
    noting(broker, seen)
    async with way.running(broker):
        await way.publish("original", "bills")
        await way.publish_batch("a", "b", queue="bills")
        published = [(row["payload"], row["headers"]["a"]) for row in await way.rows()]
        assert published == [(b"original!", "1"), (b"a!", "1"), (b"b!", "1")]
        await way.publish("original", "orders")
        assert await seen.first() == ["2"]


@pytest.mark.parametrize("has_place_of_its_own", [False, True])
async def test_exception_handler_answers_for_the_handler(way: Way, seen: Seen, *, has_place_of_its_own: bool) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(ValueError, publish=True)
    async def instead(error: ValueError) -> Any:
        answer = f"instead of {error}"
        return OutboxResponse(answer, queue="bills") if has_place_of_its_own else answer

    broker = way.broker(middlewares=[exceptions])
    handler = failing(broker)
    if not has_place_of_its_own:
        broker.publisher("bills")(handler)
    noting(broker, seen, "bills")
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["instead of broken"]
        await way.empty()


async def test_exception_handler_of_a_base_class_is_found_and_hears_of_a_decoder_that_fails(
    way: Way, seen: Seen
) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(LookupError)
    async def of_the_base(error: LookupError) -> None:
        seen(type(error))

    async def decoder(message: Any) -> Any:
        raise IndexError

    broker = way.broker(middlewares=[exceptions])
    failing(broker, error=KeyError())
    noting(broker, seen, "bills", decoder=decoder)
    async with way.running(broker):
        await way.publish(1, "orders")
        await seen.first()
        await way.publish(1, "bills")
        assert await seen.first(2) == [KeyError, IndexError]
