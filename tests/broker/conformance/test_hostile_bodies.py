"""Whatever a body or header is: refused at the call and nothing written, or delivered as it was, or a dead letter."""

import gzip
import hashlib
import os
from typing import Any

import pytest
from faststream import AckPolicy
from pydantic import BaseModel

from faststream_outbox import OutboxBroker
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from tests.broker.conformance.ways import Seen, Way, noting
from tests.cases import case

JSON = {"content-type": "application/json"}


class Order(BaseModel):
    item: str


def _tower(height: int) -> Any:
    tower: Any = "top"
    for _ in range(height):
        tower = [tower]
    return tower


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    return circle


REFUSED: dict[str, Any] = {
    "text with a surrogate": "a\ud800",
    "surrogate deep inside": {"a": ["\udfff"]},
    "surrogate in a name": {"\ud800": 1},
    "model with a surrogate": Order.model_construct(item="\ud800"),
    "hundred thousand levels": _tower(100_000),
    "circle": _circle(),
    "bytes within JSON": ["a", b"\xff"],
    "object": object(),
    "function": print,
    "class": Order,
    "error": ValueError("x"),
    "memoryview": memoryview(b"x"),
}
BODIES: dict[str, bytes] = {
    "no UTF-8": b"\xff\xfe\x00",
    "NUL": b"\x00" * 10,
    "a bomb of zeros": gzip.compress(b"\x00" * 10_000_000),
    "half a character": "é".encode()[:1],
    "JSON in UTF-16": '{"a": 1}'.encode("utf-16"),
    "deep JSON": b"[" * 100_000 + b"]" * 100_000,
    "five thousand digits": b"9" * 5000,
    "SQL": b"'; drop table outbox; --",
}
HEADERS: dict[str, dict[str, Any]] = {
    "an encoding that we could open": {"content-encoding": "gzip"},
    "an encoding that nobody knows": {"content-encoding": "zstd, x-unknown", "Content-Encoding": "br"},
    "a type that nobody knows": {"content-type": "application/x-unknown; charset=klingon"},
    "names of every kind": {"": "empty", " ": "blank", "a b\n": "line", "ł漢": "far", ":name %s {x}": "signs"},
    "values of every kind": {"a": None, "b": [1, {"c": True}], "d": 1e15, "e": "\n'\"\\", "f": 10**30, "g": {}},
    "many": {f"name {number}": "x" * 100 for number in range(500)},
}
REFUSALS = (InvalidMessage, InvalidMessageType)
UNREADABLE: dict[str, bytes] = {
    "half of JSON": b'{"item": ',
    "levels without end": b"[" * 100_000,
    "number of five thousand digits": b"9" * 5000,
    "no UTF-8": b'{"item": "\xff"}',
    "JSON of the wrong shape": b"[1, 2]",
    "nothing": b"",
    "two of them": b"{}{}",
}


def in_a_queue_and_a_topic(test: Any) -> Any:
    by_place = pytest.mark.parametrize("where", [{"queue": "orders"}, {"topic": "shop"}], ids=["queue", "topic"])
    return pytest.mark.topics(by_place(test))


def _read(broker: OutboxBroker, seen: Seen, where: dict[str, str], note: Any) -> None:
    options: Any = {"queues": "orders"} if "queue" in where else {"topic": "shop", "group": "g"}
    noting(broker, seen, note=note, **options)


@in_a_queue_and_a_topic
async def test_a_body_that_is_no_message_is_refused_and_nothing_is_written(
    way: Way, broker: OutboxBroker, where: dict[str, str]
) -> None:
    async with way.running(broker):
        for kind, body in REFUSED.items():
            for publish, bodies in ((way.publish, [body]), (way.publish_batch, ["good", body])):
                with case(kind), pytest.raises(REFUSALS, match="The message cannot be encoded"):
                    await publish(*bodies, **where)
        assert await way.rows() == []


@in_a_queue_and_a_topic
async def test_bytes_and_headers_arrive_as_they_were(
    way: Way, broker: OutboxBroker, seen: Seen, where: dict[str, str]
) -> None:
    _read(broker, seen, where, lambda body, message: (message.body, message.headers))
    sent = [(body, headers) for body in BODIES.values() for headers in HEADERS.values()]
    async with way.running(broker):
        for body, headers in sent:
            await way.publish(body, headers=headers, **where)
        arrived = await seen.first(len(sent))
    for (body, headers), (got, found) in zip(sent, arrived, strict=True):
        assert got == body
        assert headers.items() <= found.items()


async def test_a_body_that_cannot_be_read_is_a_dead_letter_and_others_are_handled(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    @broker.subscriber("orders", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(order: Order) -> None:
        seen(order.item)

    async with way.running(broker):
        for body in UNREADABLE.values():
            await way.publish_to_failing(body, "orders", headers=JSON)
            await way.publish(Order(item="good"), "orders")
        assert await seen.first(len(UNREADABLE)) == ["good"] * len(UNREADABLE)
        await way.empty()
        dead = await way.rows(dead=True)
    assert [bytes(row["payload"]) for row in dead] == [*UNREADABLE.values()]
    assert all(row["failure_reason"] == "rejected" and row["error_type"] for row in dead)


@pytest.mark.slow
@in_a_queue_and_a_topic
async def test_bodies_of_every_size_arrive(real: Way, seen: Seen, where: dict[str, str]) -> None:
    broker = real.broker()
    _read(broker, seen, where, lambda body, message: hashlib.sha256(message.body).digest())
    part = os.urandom(1_000_000)
    sizes = [1, 8191, 8192, 1_000_000, 50_000_000]
    bodies = [(part * 50)[:size] for size in sizes]
    async with real.running(broker):
        for body in bodies:
            await real.publish(body, **where)
        assert sorted(await seen.first(len(sizes))) == sorted(hashlib.sha256(body).digest() for body in bodies)
