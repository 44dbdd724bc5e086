"""The ordered log: positions, order, duplicates, and a table that does not grow for ever."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from faststream_outbox.log import OutboxMessage
from tests.contract.running import run
from tests.contract.shop import Shop
from tests.log.opened import ask

GET_ALL = """
# Get current position (all URIs)
tx_id, offset = await outbox.get_position(session, "broker")
"""

GET_ONE = """
# Get current position (specific URI)
tx_id, offset = await outbox.get_position(session, "broker", uri="kafka://orders")
"""

RESET = """
# Reset position (reprocess from beginning)
await outbox.set_position(session, "broker", uri="", transaction_id=0, offset=0)
"""

SKIP = """
# Skip ahead
await outbox.set_position(session, "broker", uri="kafka://orders", transaction_id=1000, offset=50)
"""

DEDUPLICATION = """
async def handle_message(message: OutboxMessage) -> None:
    event_id = message.metadata.get("event_id")
    if await is_already_processed(event_id):
        return # Skip duplicate
    await process(message)
    await mark_as_processed(event_id)
"""

DELETION = """
DELETE FROM outbox
WHERE transaction_id < (
    SELECT MIN(last_processed_transaction_id)
    FROM outbox_offsets
)
AND created_at < NOW() - INTERVAL '7 days'
"""


def payloads(messages: list[OutboxMessage]) -> list[Any]:
    return [message.payload for message in messages]


async def position(shop: Shop, snippet: str) -> tuple[int, int]:
    async with shop.pool() as session:
        names = await run(snippet, {**shop.names, "session": session})
    return names["tx_id"], names["offset"]


async def test_a_group_that_has_read_nothing_stands_at_zero(shop: Shop) -> None:
    assert await position(shop, GET_ALL) == (0, 0)
    assert await position(shop, GET_ONE) == (0, 0)


async def test_the_position_is_that_of_the_last_message_read(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    await shop.put("kafka://orders", 2)
    last = (await shop.read("broker"))[-1]
    assert await position(shop, GET_ALL) == (last.transaction_id, last.position)
    assert await position(shop, GET_ONE) == (0, 0)


async def test_each_uri_has_a_position_of_its_own(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    last = (await shop.read("broker", "kafka://orders"))[-1]
    assert await position(shop, GET_ONE) == (last.transaction_id, last.position)
    assert await position(shop, GET_ALL) == (0, 0)


async def test_a_reset_group_reads_everything_again(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)
    assert await shop.payloads("broker") == [1, 2]
    await shop.run(RESET)
    assert await position(shop, GET_ALL) == (0, 0)
    assert await shop.payloads("broker") == [1, 2]


async def test_a_reset_that_is_rolled_back_has_no_effect(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)
    await shop.read("broker")
    await run(RESET, shop.names)
    await shop.session.rollback()
    assert await shop.read("broker") == []


async def test_a_reset_group_is_read_anew_by_one_that_is_running(shop: Shop) -> None:
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def handle(message: OutboxMessage) -> None:
        seen.put_nowait(message.payload)

    await shop.put("kafka://orders", 1)
    stop = asyncio.Event()
    running = asyncio.create_task(shop.outbox.run(handle, "broker", poll_interval=0.05, stop_event=stop))
    async with asyncio.timeout(30):
        assert await seen.get() == 1
        await shop.run(RESET)
        assert await seen.get() == 1
        stop.set()
        await running


async def test_a_group_that_skipped_ahead_reads_what_comes_after(shop: Shop) -> None:
    await shop.put("kafka://orders", *range(1, 61))
    # Numbers in the log begin at one: the payload is the position.
    await shop.read("other")
    await shop.run(SKIP)
    assert (await position(shop, GET_ONE))[1] == 50
    assert await shop.payloads("broker", "kafka://orders") == list(range(51, 61))


async def test_skipping_ahead_moves_that_uri_only(shop: Shop) -> None:
    await shop.put("kafka://orders", *range(1, 61))
    await shop.read("other")
    await shop.run(SKIP)
    assert len(await shop.read("broker")) == 60


async def test_a_position_that_was_read_can_be_set_again(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)
    await shop.read("broker")
    tx_id, offset = await position(shop, GET_ALL)
    await shop.put("kafka://orders", 3)
    await shop.read("broker")
    async with shop.session.begin():
        await shop.outbox.set_position(shop.session, "broker", "", tx_id, offset)
    assert await shop.payloads("broker") == [3]


async def test_a_position_behind_the_last_message_reads_only_what_is_new(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)
    (_, last) = await shop.read("other")
    async with shop.session.begin():
        await shop.outbox.set_position(shop.session, "broker", "", last.transaction_id + 5, last.position + 100)
    await shop.put("kafka://orders", 3)
    assert await shop.payloads("broker") == [3]


async def test_a_handler_that_goes_by_the_event_id_processes_a_duplicate_once(shop: Shop) -> None:
    known: set[str] = set()
    processed: list[Any] = []

    async def is_already_processed(event_id: str) -> bool:
        return event_id in known

    async def process(message: OutboxMessage) -> None:
        processed.append(message.payload)

    async def mark_as_processed(event_id: str) -> None:
        known.add(event_id)

    names = {**shop.names, "is_already_processed": is_already_processed, "process": process}
    handle = (await run(DEDUPLICATION, {**names, "mark_as_processed": mark_as_processed}))["handle_message"]
    await shop.put("kafka://orders", 1, 2)
    assert await shop.outbox.dispatch(handle, "broker")
    await shop.run(RESET)
    assert await shop.outbox.dispatch(handle, "broker")
    assert processed == [1, 2]


async def test_messages_of_one_transaction_are_in_the_order_of_their_publishing(shop: Shop) -> None:
    async with shop.session.begin():
        for number in range(5):
            await shop.outbox.publish(shop.session, OutboxMessage(f"kafka://orders/{number % 3}", number))
        await shop.outbox.publish(shop.session, *[OutboxMessage("kafka://orders", number) for number in range(5, 9)])
    messages = await shop.read("broker")
    assert payloads(messages) == list(range(9))
    assert [message.position for message in messages] == sorted(message.position or 0 for message in messages)


async def test_transactions_that_follow_each_other_are_delivered_so(shop: Shop) -> None:
    for number in range(10):
        await shop.put(f"kafka://orders/{number % 3}", number)
    messages = await shop.read("broker")
    assert payloads(messages) == list(range(10))
    transactions = [message.transaction_id or 0 for message in messages]
    assert transactions == sorted(transactions)


async def test_a_message_of_a_slow_transaction_is_not_missed(shop: Shop) -> None:
    """The document's two transactions: the first draws number 1 and takes long, the second commits at once."""
    async with shop.pool.begin() as slow:
        await shop.outbox.publish(slow, OutboxMessage("kafka://orders", "slow"))
        await shop.put("kafka://orders", "fast")
        first = await shop.payloads("broker")
    assert first + await shop.payloads("broker") == ["fast", "slow"]


async def test_every_group_sees_the_same_order(shop: Shop) -> None:
    async with shop.pool.begin() as slow:
        await shop.outbox.publish(slow, OutboxMessage("kafka://orders", "slow"))
        await shop.put("kafka://orders", "fast")
        await shop.read("early")
    await shop.put("kafka://orders", "later")
    assert await shop.payloads("one") == ["fast", "slow", "later"]
    assert await shop.payloads("other") == ["fast", "slow", "later"]


async def test_the_order_within_a_uri_is_kept(shop: Shop) -> None:
    for number in range(30):
        await shop.put(f"kafka://orders/order-{number % 4}", number)
        await shop.put("kafka://invoices", number)
    assert await shop.payloads("broker", "kafka://orders") == list(range(30))
    assert await shop.payloads("broker", "kafka://orders/order-1") == list(range(1, 30, 4))


async def test_processed_messages_can_be_deleted_after_some_days(shop: Shop) -> None:
    await shop.put("kafka://orders", "old")
    await shop.read("broker")
    await ask(shop.engine, "update outbox set created_at = now() - interval '8 days'")
    await shop.put("kafka://orders", "young")
    await shop.read("broker")
    cleaned = await shop.outbox.clean(older_than=timedelta(days=7))
    assert cleaned.messages == 1
    assert await shop.payloads("new group") == ["young"]


async def test_a_message_that_one_group_has_yet_to_read_is_not_deleted(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    await shop.read("fast")
    async with shop.session.begin():
        await shop.outbox.set_position(shop.session, "slow")
    assert (await shop.outbox.clean(older_than=timedelta(0))).messages == 0
    assert await shop.payloads("slow") == [1]


async def test_the_documented_delete_is_refused_instead_of_deleting_what_is_unread(shop: Shop) -> None:
    """A minimum over transactions does not say what was read: `clean()` takes its place."""
    await shop.put("kafka://orders", 1)
    with pytest.raises(ProgrammingError, match="last_processed_transaction_id"):
        async with shop.session.begin():
            await shop.session.execute(text(DELETION))
    assert await shop.payloads("broker") == [1]


async def test_positions_and_messages_survive_for_a_group_named_like_no_other(shop: Shop) -> None:
    group = f"Größe '{uuid4()}'; drop table outbox --"
    await shop.put("kafka://orders", 1)
    assert await shop.payloads(group) == [1]
    assert await shop.read(group) == []
