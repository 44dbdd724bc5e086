"""One message leaves nothing behind for the next, and a handler that was cancelled or has returned decides nothing."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox.annotations import OutboxMessage, OutboxSession
from faststream_outbox.errors import OutboxWarning
from tests.broker.effects import EffectsShop
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)
TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_what_a_handler_sets_in_its_context_is_not_there_for_the_next(shop: EffectsShop) -> None:
    found: list[tuple[str, str]] = []

    @shop.broker.subscriber("orders")
    async def handle(body: str) -> None:
        before = TENANT.get()
        TENANT.set(body)
        await asyncio.sleep(0)
        found.append((before, TENANT.get()))

    await shop.broker.start()
    await shop.publish("a", "b")
    await eventually(lambda: len(found) == 2)
    assert found == [("nobody", "a"), ("nobody", "b")]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("ending", ["returns", "raises another error"])
async def test_handler_that_a_stop_cancels_has_not_done_its_message(
    shop: EffectsShop, transactional: bool, ending: str
) -> None:
    shop.broker.config.broker_config.graceful_timeout = 0.01
    policies = (AckPolicy.NACK_ON_ERROR, AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR)
    begun: list[str] = []

    async def handle(body: str, message: OutboxMessage) -> None:
        begun.append(body)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending != "returns":
                raise ValueError from None

    for policy in policies:
        shop.broker.subscriber(policy.name, ack_policy=policy, transactional=transactional)(handle)
    await shop.broker.start()
    for policy in policies:
        await shop.publish(policy.name, queue=policy.name)
    await eventually(lambda: len(begun) == len(policies))
    await shop.broker.stop()
    rows = await shop.sql(f"select attempts_count, acquired_token from {shop.outbox.name}")
    assert [tuple(row.values()) for row in rows] == [(0, None)] * len(policies)
    assert (await shop.state())["dead"] == 0


async def test_handler_that_has_acked_before_a_stop_cancels_it_has_done_its_message(shop: EffectsShop) -> None:
    shop.broker.config.broker_config.graceful_timeout = 0.01
    begun: list[int] = []

    async def handle(body: int, message: OutboxMessage) -> None:
        await message.ack()
        begun.append(body)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async def writing(body: int, message: OutboxMessage, session: OutboxSession) -> None:
        await shop.write(session, body)
        await handle(body, message)

    shop.broker.subscriber("plain")(handle)
    shop.broker.subscriber("writing", transactional=True)(writing)
    await shop.broker.start()
    await shop.publish(1, queue="plain")
    await shop.publish(2, queue="writing")
    await eventually(lambda: len(begun) == 2)
    await shop.broker.stop()
    assert await shop.state() == {"effects": [2], "messages": {}, "dead": 0}


async def test_decision_after_the_handler_has_returned_is_warned_about(shop: EffectsShop) -> None:
    kept: list[Any] = []

    @shop.broker.subscriber("orders", ack_policy=AckPolicy.MANUAL, retry_strategy=LATER)
    async def handle(body: int, message: OutboxMessage) -> None:
        kept.append(message)

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()
    for decide in (kept[0].ack, kept[0].nack, kept[0].reject):
        with pytest.warns(OutboxWarning, match="Decide before the handler returns") as reported:
            await decide()
        assert reported[0].filename == __file__
    await shop.broker.stop()
    assert (await shop.state())["messages"] == {"orders": [b"1"]}


async def test_handler_in_a_thread_that_outlives_a_stop_has_done_its_message(shop: EffectsShop) -> None:
    begun, go_on = threading.Event(), threading.Event()
    shop.broker.config.broker_config.graceful_timeout = 0.01

    @shop.broker.subscriber("orders")
    def handle(body: int) -> None:
        begun.set()
        go_on.wait(30)

    await shop.broker.start()
    await shop.publish(1)
    await eventually(begun.is_set)
    stopping = asyncio.create_task(shop.broker.stop())
    # Cancelled, and still waited for.
    await eventually(lambda: not shop.broker.running)
    go_on.set()
    await stopping
    await shop.becomes()


@pytest.mark.parametrize("ending", ["returns", "raises another error"])
async def test_handler_whose_time_is_over_has_failed_however_it_ends(shop: EffectsShop, ending: str) -> None:
    async def handle(body: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending != "returns":
                raise ValueError from None

    async def writing(body: str, session: OutboxSession) -> None:
        await shop.write(session, 1)
        await handle(body)

    options: dict[str, Any] = {"handler_timeout": 0.05, "retry_strategy": NoRetry()}
    shop.broker.subscriber("nack", **options)(handle)
    shop.broker.subscriber("ack", ack_policy=AckPolicy.ACK, **options)(handle)
    shop.broker.subscriber("writing", transactional=True, **options)(writing)
    await shop.broker.start()
    for queue in ("nack", "ack", "writing"):
        await shop.publish("a", queue=queue)
    await shop.becomes(dead=3)
    letters = await shop.sql(f"select error_type, failure_reason from {shop.dlq.name}")
    assert {tuple(letter.values()) for letter in letters} == {("TimeoutError", "retry_terminal")}
