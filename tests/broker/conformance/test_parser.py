"""Parsers, decoders and codecs of the application."""

from typing import Any

import pytest

from faststream_outbox import ConstantRetry, OutboxBroker, OutboxMessage
from tests.broker.conformance.ways import Seen, Way, noting

LATER = ConstantRetry(delay_seconds=1000)
PLACES = pytest.mark.parametrize("place", ["broker", "subscriber", "handler"])


async def _async_parser(raw: Any, original: Any) -> Any:
    message = await original(raw)
    message.headers = {**message.headers, "parsed": "yes"}
    return message


async def _async_decoder(message: Any, original: Any) -> Any:
    return [await original(message)]


def _sync_decoder(message: Any) -> Any:
    return "by hand"


def _registered(way: Way, place: str, handle: Any, *, of_handler: Any = None, **options: Any) -> OutboxBroker:
    """A broker whose handler of `orders` has the options from one of three places."""
    broker = way.broker(**(options if place == "broker" else {}))
    subscriber = broker.subscriber("orders", **(options if place == "subscriber" else {}))
    subscriber(handle, **(of_handler or {}), **(options if place == "handler" else {}))
    return broker


@PLACES
async def test_parser_is_used(way: Way, seen: Seen, place: str) -> None:
    async def is_parsed(message: Any) -> bool:
        return bool(message.headers.get("parsed"))

    async def handle(body: int) -> None:
        seen(body)

    broker = _registered(way, place, handle, of_handler={"filter": is_parsed}, parser=_async_parser)
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]


@PLACES
@pytest.mark.parametrize(("decoder", "decoded"), [(_async_decoder, [1]), (_sync_decoder, "by hand")])
async def test_decoder_is_used(way: Way, seen: Seen, place: str, decoder: Any, decoded: Any) -> None:
    async def handle(body: Any) -> None:
        seen(body)

    async with way.running(_registered(way, place, handle, decoder=decoder)):
        await way.publish(1, "orders")
        assert await seen.first() == [decoded]


async def test_parser_and_decoder_may_replace_ours(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    def parser(raw: Any) -> Any:
        return OutboxMessage(raw_message=raw, body=raw.payload, message_id=str(raw.id), correlation_id="c1")

    noting(broker, seen, parser=parser, decoder=_sync_decoder)
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["by hand"]
        await way.empty()


async def test_parser_of_a_batch_gets_all_claims(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    async def parser(raw: Any, original: Any) -> Any:
        seen(len(raw))
        return await original(raw)

    @broker.subscriber("orders", batch=True, parser=parser)
    async def handle(bodies: list[int]) -> None: ...

    async with way.running(broker):
        await way.publish_batch(1, 2, queue="orders")
        await way.empty()
    assert sum(seen) == 2


class Codec:
    """Bodies back to front."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    async def encode(self, body: Any, serializer: Any) -> tuple[bytes, str | None]:
        return str(body)[::-1].encode(), "text/plain"

    async def decode(self, message: Any) -> Any:
        self._seen("decoded")
        return message.body.decode()[::-1]


class BatchCodec(Codec):
    async def encode_batch(self, bodies: Any, serializer: Any) -> list[tuple[bytes, str | None]]:
        return [(f"batch {body}".encode(), "text/plain") for body in bodies]

    async def decode_batch(self, message: Any) -> list[Any]:
        self._seen("decoded batch")
        return [body.decode() for body in message.body]


async def test_codec_of_the_broker_encodes_and_decodes(way: Way, seen: Seen) -> None:
    broker = way.broker(codec=Codec(seen))
    noting(broker, seen)
    async with way.running(broker):
        await way.publish("abc", "nobody")
        await way.publish_batch("ab", "cd", queue="nobody")
        assert [row["payload"] for row in await way.rows()] == [b"cba", b"ba", b"dc"]
        await way.publish("abc", "orders")
        assert await seen.first(2) == ["decoded", "abc"]


async def test_codec_of_a_subscriber_decodes(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, codec=Codec(seen))
    async with way.running(broker):
        await way.publish("abc", "orders")
        assert await seen.first(2) == ["decoded", "cba"]


async def test_codec_of_batches_is_asked_for_batches(way: Way, seen: Seen) -> None:
    broker = way.broker(codec=BatchCodec(seen))

    @broker.subscriber("orders", batch=True)
    async def handle(bodies: list[str]) -> None:
        for body in bodies:
            seen(body)

    async with way.running(broker):
        await way.publish_batch("a", "b", queue="orders")
        await way.empty()
    assert [one for one in seen if one != "decoded batch"] == ["batch a", "batch b"]
    assert "decoded batch" in seen
