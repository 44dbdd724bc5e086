"""`python -m bench.consume_path`: CPU per message from a claim in flight to its decision, without a database.

Next to it, in the same run, FastStream's floor: the smallest subscriber that FastStream allows, with the
same handler, body and acknowledgement policy. The floor of a batch is a loop that reads the bodies and validates them.
Ratios count, absolute times depend on the machine.
"""

import argparse
import asyncio
import json
import platform
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from time import process_time
from typing import Annotated, Any, NoReturn
from uuid import uuid4

from fast_depends import dependency_provider
from faststream import AckPolicy, Context, ContextRepo
from faststream.message import StreamMessage, decode_message
from faststream.specification.schema import SubscriberSpec
from pydantic import BaseModel, TypeAdapter
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox._internal.broker import _faststream as private
from faststream_outbox._internal.broker.logs import make_outbox_logger_state
from faststream_outbox._internal.sql.queue_rows import ClaimedRow
from faststream_outbox._internal.testing.broker import MemoryBackend
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.queue import Claim, Worker
from faststream_outbox.testing import FakeOutboxClient

BODY = b'{"order_id": 12345, "amount": 99.5}'
HEADERS = '{"content-type": "application/json", "correlation_id": "c1"}'
GOAL = 1.3
BATCH, BATCH_GOAL = 500, 2.0

Consume = Callable[[Any], Awaitable[Any]]
Prepared = tuple[Consume, Callable[[int], list[Any]]]


class Order(BaseModel):
    """A body."""

    order_id: int
    amount: float


async def body_only(body: dict[str, float]) -> None:
    """The cheapest handler that validates."""


async def annotated(body: dict[str, float], message: OutboxMessage) -> None:
    """With one parameter of our annotations."""


async def plain_context(body: dict[str, float], message: Annotated[Any, Context("message")]) -> None:
    """With one parameter of FastStream's own `Context`, for comparison."""


async def model(order: Order) -> None:
    """With a model."""


@dataclass(kw_only=True)
class FloorConfig(private.SubscriberUsecaseConfig):
    """What the floor's subscriber is made of."""

    @property
    def ack_policy(self) -> AckPolicy:
        """As ours by default."""
        return AckPolicy.NACK_ON_ERROR


class FloorSpecification(private.SubscriberSpecification[Any, Any]):
    """Says nothing."""

    @property
    def channel_labels(self) -> list[str]:
        """The queue."""
        return ["orders"]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Nothing."""
        return {}


class FloorSubscriber(private.SubscriberUsecase[Any]):
    """A subscriber with nothing but what FastStream asks for."""

    async def get_one(self, *, timeout: float = 5.0) -> NoReturn:
        """Not needed."""
        raise NotImplementedError

    def __aiter__(self) -> NoReturn:
        """Not needed."""
        raise NotImplementedError

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Iterable[Any]:
        return ()

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """As little as possible."""
        return {"message_id": getattr(message, "message_id", "")}


async def _parse(raw: tuple[Any, ...]) -> StreamMessage[Any]:
    headers = json.loads(raw[1])
    return StreamMessage(
        raw_message=raw,
        body=raw[0],
        headers=headers,
        reply_to="",
        content_type=headers["content-type"],
        correlation_id=headers["correlation_id"],
        message_id=raw[2],
    )


async def _decode(message: StreamMessage[Any]) -> Any:
    return decode_message(message)


async def floor(handler: Callable[..., Any]) -> Prepared:
    """FastStream's part alone."""
    settings = private.BrokerConfig(
        logger=make_outbox_logger_state(logger=None, log_level=20),
        fd_config=private.FastDependsConfig(
            use_fastdepends=True, serializer=private.EMPTY, provider=dependency_provider, context=ContextRepo()
        ),
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    # As a broker has it: settings are read through a composition.
    config: Any = private.BrokerRouter(config=settings, handlers=(), routers=()).config
    config.logger._setup(config.context)
    calls: Any = private.CallsCollection()
    usecase = FloorConfig(_outer_config=config, _ack_policy=AckPolicy.NACK_ON_ERROR)
    usecase.parser, usecase.decoder = _parse, _decode
    described = private.SubscriberSpecificationConfig(title_=None, description_=None, include_in_schema=False)
    subscriber = FloorSubscriber(usecase, FloorSpecification(config, described, calls), calls)
    subscriber.add_call(parser_=None, decoder_=None, dependencies_=())
    subscriber(handler)
    await subscriber.start()
    subscriber._post_start()
    return subscriber.consume, lambda count: [(BODY, HEADERS, str(uuid4())) for _ in range(count)]


async def ours(handler: Callable[..., Any]) -> Prepared:
    """The broker's subscriber, from a claim to its decision."""
    table = make_outbox_table(MetaData())
    broker = OutboxBroker(outbox_table=table, logger=None)
    broker.config.broker_config.own_backend = MemoryBackend(FakeOutboxClient(table))
    subscriber = broker.subscriber("orders")
    subscriber(handler)
    await broker.start()
    return subscriber.handle, claims_of(subscriber.make_worker())


def claims_of(worker: Worker) -> Callable[[int], list[Any]]:
    """Makes claims."""
    now, row_time = asyncio.get_running_loop().time(), datetime.now(UTC)

    def claims(count: int) -> list[Any]:
        start = (BODY, HEADERS, 0, 1, row_time, row_time, None, None, None, None, 0)
        rows = [ClaimedRow(n, "orders", *start, uuid4(), row_time, None) for n in range(count)]
        return [Claim(row, uuid4(), worker, now) for row in rows]

    return claims


async def many(bodies: list[dict[str, float]]) -> None:
    """A batch handler."""


async def ours_by_batch() -> Prepared:
    """The broker's batch subscriber, from claims to their decisions."""
    table = make_outbox_table(MetaData())
    broker = OutboxBroker(outbox_table=table, logger=None)
    broker.config.broker_config.own_backend = MemoryBackend(FakeOutboxClient(table))
    subscriber = broker.subscriber("orders", batch=True, batch_size=BATCH)
    subscriber(many)
    await broker.start()
    made = claims_of(subscriber.make_worker())
    return subscriber.handle_batch, lambda count: [made(BATCH) for _ in range(count // BATCH)]


async def floor_by_batch() -> Prepared:
    """The least that must be done to a batch."""
    validated = TypeAdapter(list[dict[str, float]])

    async def consume(bodies: list[bytes]) -> None:
        await many(validated.validate_python([json.loads(body) for body in bodies]))

    return consume, lambda count: [[BODY] * BATCH for _ in range(count // BATCH)]


HANDLERS = (body_only, annotated, model, plain_context)


async def measured(prepared: Prepared, messages: int) -> float:
    """Microseconds of CPU per message."""
    consume, made = prepared
    batch = made(messages)
    before = process_time()
    for one in batch:
        await consume(one)
    return (process_time() - before) / messages * 1e6


async def main() -> None:
    """Run and print."""
    options = argparse.ArgumentParser(prog="bench.consume_path")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--messages", type=int, default=3000)
    chosen = options.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, best of {chosen.rounds} rounds\n")
    print(f"{'CPU µs a message':<40}{'ours':>8}{'floor':>8}{'ratio':>8}{'median':>8}")
    pairs = {handler.__name__: (await ours(handler), await floor(handler)) for handler in HANDLERS}
    pairs[f"{many.__name__}, {BATCH} at once"] = (await ours_by_batch(), await floor_by_batch())
    for name, pair in pairs.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(chosen.rounds):
            for prepared, found in zip(pair, times, strict=True):
                found.append(await measured(prepared, chosen.messages))
        best = min(times[0]) / min(times[1])
        typical = median(a / b for a, b in zip(*times, strict=True))
        print(f"{name:<40}{min(times[0]):>8.1f}{min(times[1]):>8.1f}{best:>8.2f}{typical:>8.2f}", flush=True)
    print(f"\nThe goal is a ratio of at most {GOAL}, for a batch of {BATCH_GOAL}.")


if __name__ == "__main__":
    asyncio.run(main())
