"""Forwarding to a JetStream: confirmed before the message is deleted, under an id that tells duplicates."""

from collections.abc import Callable
from typing import Any

import pytest
from faststream import BaseMiddleware, FastStream
from faststream.nats import NatsBroker, NatsPublishCommand, NatsResponse
from faststream.response import PublishCommand
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from tests.broker.effects import EffectsShop
from tests.broker.topics.stage import Stage
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually

SOON = ConstantRetry(delay_seconds=0.05)


class LosesAnswers(BaseMiddleware):
    """Publishes, and says once that it did not."""

    answers_to_lose = 1

    async def publish_scope(self, call_next: Callable[..., Any], cmd: PublishCommand) -> Any:
        await call_next(cmd)
        if isinstance(cmd, NatsPublishCommand) and LosesAnswers.answers_to_lose:
            LosesAnswers.answers_to_lose -= 1
            raise TimeoutError("the answer was lost")


def forward(broker: OutboxBroker, nats: NatsBroker, *, timeout: float = 30, **options: Any) -> None:
    @nats.publisher("shop.orders", stream="shop", timeout=timeout)
    @broker.subscriber("orders", retry_strategy=SOON, **options)
    async def hand_over(number: int) -> int:
        return number


async def is_stored(nats_server: NatsServer, count: int) -> list[dict[str, str]]:
    """The headers of what is in the stream, once there is so much of it."""

    async def so_much() -> list[dict[str, str]]:
        headers = [headers for _, headers in await nats_server.stored("shop")]
        return headers if len(headers) >= count else []

    found: list[dict[str, str]] = await eventually(so_much, timeout=30)
    assert len(found) == count
    return found


async def test_nothing_is_deleted_while_the_other_server_is_down(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    forward(shop.broker, nats, timeout=0.2, max_workers=5)
    app = FastStream(shop.broker, nats, logger=None)
    await app.start()
    nats_server.kill()
    await shop.publish(*range(5))

    async def all_have_failed_twice() -> bool:
        rows = await shop.sql(f"select 1 from {shop.outbox.name} where attempts_count >= 2")
        return len(rows) == 5

    await eventually(all_have_failed_twice, timeout=60)
    await nats_server.start()
    await shop.becomes()
    assert {body for body, _ in await nats_server.stored("shop")} == {b"0", b"1", b"2", b"3", b"4"}
    await app.stop()


async def test_the_message_id_is_sent_along(shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer) -> None:
    forward(shop.broker, nats, propagate_inbound_headers=True)
    # Ids of an earlier message are not passed on.
    earlier = {"message_id": "of another", "Nats-Msg-Id": "of another", "tenant": "a"}
    async with AsyncSession(shop.engine) as session, session.begin():
        for number, headers in enumerate((None, earlier, earlier)):
            await shop.broker.publish(number, "orders", headers=headers, session=session)
    rows = await shop.sql(f"select message_id from {shop.outbox.name} order by id")
    ids = [str(row["message_id"]) for row in rows]
    async with FastStream(shop.broker, nats, logger=None):
        stored = await is_stored(nats_server, 3)
    assert [each["message_id"] for each in stored] == ids
    assert [each["Nats-Msg-Id"] for each in stored] == [f"{one}:shop.orders" for one in ids]
    assert [each.get("tenant") for each in stored] == [None, "a", "a"]


async def test_a_repeated_message_is_stored_once(
    engine: Any, table: Any, shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    LosesAnswers.answers_to_lose = 1
    shop.broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, middlewares=[LosesAnswers], logger=None)
    forward(shop.broker, nats)
    await shop.publish(1)
    async with FastStream(shop.broker, nats, logger=None):
        await shop.becomes()
        await is_stored(nats_server, 1)
    assert LosesAnswers.answers_to_lose == 0


async def test_two_publishers_of_one_handler_are_no_duplicates(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    @nats.publisher("shop.letters", stream="shop", timeout=30)
    @nats.publisher("shop.invoices", stream="shop", timeout=30)
    @shop.broker.subscriber("orders", retry_strategy=SOON)
    async def hand_over(number: int) -> int:
        return number

    await shop.publish(1)
    async with FastStream(shop.broker, nats, logger=None):
        both = await is_stored(nats_server, 2)
    assert both[0]["message_id"] == both[1]["message_id"]


async def test_an_id_of_the_handlers_own_is_left_alone(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    @nats.publisher("shop.orders", stream="shop", timeout=30)
    @shop.broker.subscriber("orders", retry_strategy=SOON)
    async def hand_over(number: int) -> NatsResponse:
        return NatsResponse(number, headers={"message_id": "mine", "Nats-Msg-Id": "mine too"})

    await shop.publish(1)
    async with FastStream(shop.broker, nats, logger=None):
        (headers,) = await is_stored(nats_server, 1)
    assert (headers["message_id"], headers["Nats-Msg-Id"]) == ("mine", "mine too")


@pytest.mark.parametrize("has_event_id", [True, False])
async def test_groups_of_a_topic_are_no_duplicates(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer, has_event_id: bool
) -> None:
    for group in ("billing", "search"):

        @nats.publisher("shop.orders", stream="shop", timeout=30)
        @stage.broker.subscriber(topic="orders", group=group)
        async def hand_over(number: int) -> int:
            return number

    headers = {"event_id": "8f6f2c0e-0d0b-4a39-9d3e-6f3f8a2b7c11"} if has_event_id else None
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", headers=headers, session=connection)
    async with FastStream(stage.broker, nats, logger=None):
        both = await is_stored(nats_server, 2)
    assert both[0]["message_id"] == both[1]["message_id"]
    assert all(("Nats-Msg-Id" in each) is has_event_id for each in both)
