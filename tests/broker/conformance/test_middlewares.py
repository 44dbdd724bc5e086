"""Middlewares: in which order, around what, and what they do about exceptions."""

from typing import Any

from faststream import BaseMiddleware, ExceptionMiddleware

from faststream_outbox import ConstantRetry, OutboxResponse, OutboxRouter
from tests.broker.conformance.ways import Seen, Way

LATER = ConstantRetry(delay_seconds=1000)


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


async def test_middlewares_run_from_the_outside_in_and_back(way: Way, seen: Seen) -> None:
    broker = way.broker(middlewares=[_telling("broker", seen)])
    router = OutboxRouter(middlewares=[_telling("router", seen)])

    @router.subscriber("orders")
    @router.publisher("nobody")
    async def handle(body: int) -> int:
        seen("handler")
        return body

    broker.include_router(router)
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


async def test_middleware_added_later_runs(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen("handler")

    broker.add_middleware(_telling("added", seen))
    async with way.running(broker):
        await way.publish(1, "orders")
        assert (await seen.first(3))[:3] == ["added receives", "added consumes", "handler"]


async def test_middleware_changes_what_the_handler_gets(way: Way, seen: Seen) -> None:
    class Changing(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            msg.body = b"2"
            return await call_next(msg)

    broker = way.broker(middlewares=[Changing])

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [2]


async def test_middleware_changes_what_is_published(way: Way) -> None:
    class Changing(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.body = "changed"
            cmd.headers = {"a": "1"}
            return await call_next(cmd)

    async with way.running(way.broker(middlewares=[Changing])):
        await way.publish("original", "orders")
        (row,) = await way.rows()
    assert (row["payload"], row["headers"]["a"]) == (b"changed", "1")


async def test_middleware_changes_every_message_of_a_batch(way: Way) -> None:
    class Changing(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.batch_bodies = [f"{body}!" for body in cmd.batch_bodies]
            return await call_next(cmd)

    async with way.running(way.broker(middlewares=[Changing])):
        await way.publish_batch("a", "b", queue="orders")
        assert [row["payload"] for row in await way.rows()] == [b"a!", b"b!"]


async def test_exception_handler_answers_for_the_handler(way: Way, seen: Seen) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(ValueError, publish=True)
    async def instead(error: ValueError) -> str:
        return f"instead of {error}"

    broker = way.broker(middlewares=[exceptions])

    @broker.subscriber("orders")
    @broker.publisher("bills")
    async def handle(body: int) -> str:
        raise ValueError(body)

    @broker.subscriber("bills")
    async def collected(body: str) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["instead of 1"]
        await way.empty()


async def test_exception_handler_may_answer_with_a_message_of_its_own(way: Way, seen: Seen) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(ValueError, publish=True)
    async def instead(error: ValueError) -> OutboxResponse:
        return OutboxResponse(f"instead of {error}", queue="failures")

    broker = way.broker(middlewares=[exceptions])

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        raise ValueError(body)

    @broker.subscriber("failures")
    async def collected(body: str) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["instead of 1"]
        await way.empty()


async def test_exception_handler_of_a_base_class_is_found(way: Way, seen: Seen) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(LookupError)
    async def of_the_base(error: LookupError) -> None:
        seen("base")

    broker = way.broker(middlewares=[exceptions])

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        raise KeyError

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["base"]


async def test_exception_handler_hears_of_a_decoder_that_fails(way: Way, seen: Seen) -> None:
    exceptions = ExceptionMiddleware()

    @exceptions.add_handler(ZeroDivisionError)
    async def reported(error: ZeroDivisionError) -> None:
        seen("events")

    async def decoder(message: Any) -> Any:
        raise ZeroDivisionError

    broker = way.broker(middlewares=[exceptions], decoder=decoder)

    @broker.subscriber("orders")
    async def handle(body: Any) -> None:
        seen("handler")

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["events"]


async def test_exception_that_nobody_handles_fails_the_message(way: Way) -> None:
    broker = way.broker(middlewares=[ExceptionMiddleware()])

    @broker.subscriber("orders", retry_strategy=LATER)
    async def handle(body: int) -> None:
        raise ValueError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()


async def test_middleware_that_fails_on_receipt_fails_the_message(way: Way) -> None:
    class Failing(BaseMiddleware):
        async def on_receive(self) -> None:
            raise ValueError

    broker = way.broker(middlewares=[Failing])

    @broker.subscriber("orders", retry_strategy=LATER)
    async def handle(body: int) -> None: ...

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()


async def test_failure_of_a_handler_is_kept_with_its_dead_letter(way: Way) -> None:
    broker = way.broker(middlewares=[_telling("broker", Seen())])

    @broker.subscriber("orders", max_deliveries=1, retry_strategy=ConstantRetry(delay_seconds=1, max_attempts=1))
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        letter = await way.died()
    assert (letter["error_type"], letter["error_message"]) == ("ValueError", "broken")
    assert 'raise ValueError("broken")' in letter["traceback"]
