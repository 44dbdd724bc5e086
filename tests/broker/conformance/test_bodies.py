"""Every kind of body arrives as what it was."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from faststream_outbox import OutboxBroker
from tests.broker.conformance.ways import Seen, Way, noting


class Order(BaseModel):
    id: int
    name: str = "x"


@dataclass
class Bill:
    id: int


UUID_ = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

BODIES: list[tuple[Any, Any, Any]] = [
    ("text", str, "text"),
    ("ünï☃\x00", str, "ünï☃\x00"),
    ("", str, ""),
    (b"\x00\xff", bytes, b"\x00\xff"),
    (b"", bytes, b""),
    (1, int, 1),
    (1.5, float, 1.5),
    (True, bool, True),
    ({"a": 1}, dict[str, int], {"a": 1}),
    ([1, 2], list[int], [1, 2]),
    ([], list[int], []),
    (Order(id=1), Order, Order(id=1)),
    (Bill(1), Bill, Bill(1)),
    ([Order(id=1)], list[Order], [Order(id=1)]),
    (Decimal("1.20"), Decimal, Decimal("1.20")),
    (NOON, datetime, NOON),
    (date(2026, 1, 2), date, date(2026, 1, 2)),
    (UUID_, UUID, UUID_),
]


def _noting_of(kind: Any, queue: str, seen: Seen) -> Callable[[Any], Awaitable[None]]:
    async def handle(body: Any) -> None:
        seen(queue, body)

    handle.__annotations__["body"] = kind
    return handle


async def test_body_arrives_as_what_it_was(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    queues = {f"orders-{number}": body for number, body in enumerate(BODIES)}
    for queue, (_, kind, _) in queues.items():
        broker.subscriber(queue)(_noting_of(kind, queue, seen))
    async with way.running(broker):
        for queue, (sent, _, _) in queues.items():
            await way.publish(sent, queue)
        arrived = dict(await seen.first(len(BODIES)))
    assert arrived == {queue: received for queue, (_, _, received) in queues.items()}
    # Equal numbers may be of different kinds.
    assert {queue: type(body) for queue, body in arrived.items()} == {
        queue: type(received) for queue, (_, _, received) in queues.items()
    }


async def test_none_arrives_as_an_empty_body(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with way.running(broker):
        await way.publish(None, "orders")
        assert await seen.first() in ([b""], [None])


async def test_body_of_the_wrong_shape_is_a_failed_attempt(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    @broker.subscriber("orders")
    async def handle(body: Order) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish_to_failing({"id": "no number"}, "orders")
        await way.attempted()
    assert seen == []


async def test_without_validation_the_body_is_what_was_decoded(way: Way, seen: Seen) -> None:
    broker = way.broker(apply_types=False)

    @broker.subscriber("orders")
    async def handle(body: Order) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(Order(id=1), "orders")
        assert await seen.first() == [{"id": 1, "name": "x"}]
