"""The ordered log: consumer groups, filters by URI, and `dispatch()`."""

import asyncio
import sys

import pytest
from sqlalchemy import URL

from faststream_outbox.log import OutboxMessage, slot_of
from tests.contract.running import run
from tests.contract.shop import Shop
from tests.waiting import eventually

URIS = """
# URI without partition key — all messages go to one worker
await outbox.publish(session, OutboxMessage(uri="kafka://orders", payload={"type": "OrderCreated"}))
# URI with partition key — distributed across workers by hash
await outbox.publish(session, OutboxMessage(uri="kafka://orders/order-123", payload={"type": "OrderCreated"}))
await outbox.publish(session, OutboxMessage(uri="kafka://orders/order-456", payload={"type": "OrderCreated"}))
"""

PREFIX = """
# Matches both "kafka://orders" and "kafka://orders/*"
await outbox.dispatch(handler, consumer_group="broker", uri="kafka://orders")
"""

DISPATCHING = """
async def send_to_broker(message: OutboxMessage) -> None:
    await broker.publish(
        topic=message.uri,
        payload=message.payload,
        headers=message.metadata,
    )
# Process one batch (all URIs)
has_messages = await outbox.dispatch(send_to_broker, consumer_group="broker")
"""

SENDING = DISPATCHING.partition("# Process")[0]

ONE_URI = """
# Process one batch (specific URI)
has_messages = await outbox.dispatch(send_to_broker, consumer_group="broker", uri="kafka://orders")
"""

DYING = """
import asyncio, os, sys
from sqlalchemy.ext.asyncio import create_async_engine
from faststream_outbox.log import Outbox

async def send(message):
    print("sent", message.payload, flush=True)
    os._exit(1)

asyncio.run(Outbox(create_async_engine(sys.argv[1]), lease_ttl_seconds=1.0).dispatch(send, "broker"))
"""


async def has_messages(shop: Shop, snippet: str = DISPATCHING) -> bool:
    known = await run(snippet, shop.names)
    return bool(known["has_messages"])


async def test_dispatch_sends_every_message_to_the_broker(shop: Shop) -> None:
    await shop.put("kafka://orders", {"type": "OrderCreated"})
    await shop.put("rabbit://invoices", {"type": "InvoiceSent"})
    assert await has_messages(shop)
    assert [(topic, payload["type"]) for topic, payload, _ in shop.broker.sent] == [
        ("kafka://orders", "OrderCreated"),
        ("rabbit://invoices", "InvoiceSent"),
    ]
    assert [list(headers) for _, _, headers in shop.broker.sent] == [["event_id"], ["event_id"]]


async def test_dispatch_says_whether_there_were_messages(shop: Shop) -> None:
    assert not await has_messages(shop)
    await shop.put("kafka://orders", 1)
    assert await has_messages(shop)
    assert not await has_messages(shop)
    assert len(shop.broker.sent) == 1


async def test_dispatch_of_one_uri_leaves_the_others(shop: Shop) -> None:
    await shop.put("kafka://invoices", 1)
    await shop.put("kafka://orders", 2)
    assert await has_messages(shop, SENDING + ONE_URI)
    assert [payload for _, payload, _ in shop.broker.sent] == [2]


async def test_dispatch_of_one_uri_is_false_where_only_others_have_messages(shop: Shop) -> None:
    await shop.put("kafka://invoices", 1)
    assert not await has_messages(shop, SENDING + ONE_URI)


async def test_a_filter_matches_the_uri_itself_and_what_lies_below_it(shop: Shop) -> None:
    async with shop.session.begin():
        await run(URIS, shop.names)
        strangers = ("kafka://orders2", "kafka://order", "kafka://ordersx/order-1", "KAFKA://orders", "kafka://orders-")
        await shop.outbox.publish(shop.session, *[OutboxMessage(uri, 0) for uri in strangers])
    found: list[str] = []

    async def handler(message: OutboxMessage) -> None:
        found.append(message.uri)

    await run(PREFIX, {**shop.names, "handler": handler})
    assert found == ["kafka://orders", "kafka://orders/order-123", "kafka://orders/order-456"]


async def test_every_uri_and_no_uri_are_positions_of_their_own(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    assert await shop.payloads("broker", "kafka://orders") == [1]
    assert await shop.payloads("broker") == [1]
    assert await shop.payloads("broker", "kafka://orders") == []


async def test_groups_read_independently(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)
    assert await shop.payloads("broker") == [1, 2]
    await shop.put("kafka://orders", 3)
    assert await shop.payloads("audit") == [1, 2, 3]
    assert await shop.payloads("broker") == [3]


async def test_a_group_that_fails_holds_up_no_other(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2)

    async def fail(message: OutboxMessage) -> None:
        raise RuntimeError("down")

    await shop.outbox.dispatch(fail, "broken")
    assert await shop.payloads("broker") == [1, 2]


async def test_a_message_whose_handler_failed_is_sent_again(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    attempts: list[int] = []

    async def fail_once(message: OutboxMessage) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("down")

    first = await shop.outbox.dispatch(fail_once, "broker")
    assert (first.handled, [str(error) for _, error in first.failures]) == (0, ["down"])

    async def again() -> bool:
        await shop.outbox.dispatch(fail_once, "broker")
        return len(attempts) == 2

    await eventually(again)


@pytest.mark.slow
async def test_a_message_is_sent_again_where_the_dispatcher_dies_before_it_is_marked(
    shop: Shop, database_url: URL
) -> None:
    await shop.put("kafka://orders", 1)
    address = database_url.render_as_string(hide_password=False)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, address, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert (printed, process.returncode) == (b"sent 1\n", 1)

    async def again() -> bool:
        return await shop.payloads("broker") == [1]

    await eventually(again)


async def test_workers_of_a_dispatch_share_every_message_among_them(shop: Shop) -> None:
    uris = [f"kafka://orders/order-{number}" for number in range(60)]
    for uri in uris:
        await shop.put(uri, uri)
    shares = [await shop.payloads("broker", "kafka://orders", worker_id=worker, num_workers=3) for worker in range(3)]
    assert all(shares)
    assert sorted(uri for share in shares for uri in share) == sorted(uris)


async def test_each_worker_keeps_a_position_of_its_own(shop: Shop) -> None:
    by_worker: dict[int, str] = {}
    number = 0
    while len(by_worker) < 2:
        by_worker.setdefault(slot_of(uri := f"kafka://orders/{number}") // 128, uri)
        number += 1
    for uri in by_worker.values():
        await shop.put(uri, uri)
    assert await shop.payloads("broker", worker_id=0, num_workers=2) == [by_worker[0]]
    # The other one has read nothing yet, whatever the first has read.
    assert await shop.payloads("broker", worker_id=1, num_workers=2) == [by_worker[1]]
    assert await shop.read("broker") == []


async def test_messages_without_a_partition_key_go_to_one_worker(shop: Shop) -> None:
    await shop.put("kafka://orders", *range(20))
    shares = [await shop.read("broker", worker_id=worker, num_workers=3) for worker in range(3)]
    assert sorted(len(share) for share in shares) == [0, 0, 20]
