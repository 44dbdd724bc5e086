"""The ordered log: setting up, and publishing in the transaction of the business data."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.cases import case
from tests.contract.running import run
from tests.contract.shop import Repository, Shop, open_shop
from tests.log.opened import ask

SOLUTION = """
async with session.begin():
    await repository.save(order)
    await outbox.publish(session, OutboxMessage(
        uri="kafka://orders",
        payload={"type": "OrderCreated", "order_id": str(order.id), "amount": order.amount},
        metadata={"event_id": str(uuid4())},
    ))
# Both are committed atomically - or neither
"""

SETUP = """
from faststream_outbox.log import Outbox
outbox = Outbox(
    session_pool=pool,
    outbox_table='outbox', # default
    offsets_table='outbox_offsets', # default
    batch_size=100 # default
)
# Create tables
await outbox.setup()
"""

PUBLISHING = """
from faststream_outbox.log import OutboxMessage
from uuid import uuid4
async with session.begin():
    # Business logic
    await repository.save(order)
    # Publish to outbox (same transaction)
    await outbox.publish(session, OutboxMessage(
        uri="kafka://orders",
        payload={
            "type": "OrderCreated",
            "order_id": str(order.id),
            "customer_id": str(order.customer_id),
            "amount": order.amount,
        },
        metadata={
            "event_id": str(uuid4()), # Required for idempotency
            "correlation_id": correlation_id,
            "causation_id": causation_id,
        },
    ))
"""

INSTALLATION = "from faststream_outbox.log import Outbox, OutboxMessage"


async def test_installation() -> None:
    names = await run(INSTALLATION, {})
    assert (names["Outbox"], names["OutboxMessage"]) == (Outbox, OutboxMessage)


async def test_the_order_and_its_message_are_committed_together(shop: Shop) -> None:
    await run(SOLUTION, shop.names)
    (message,) = await shop.read()
    assert await shop.orders() == [shop.order.id]
    assert message.uri == "kafka://orders"
    assert message.payload == {"type": "OrderCreated", "order_id": str(shop.order.id), "amount": 100}
    assert str(UUID(message.metadata["event_id"])) == message.event_id


async def test_neither_is_there_when_the_transaction_fails_after_both(shop: Shop) -> None:
    snippet = SOLUTION.replace("# Both", "    raise RuntimeError('crash')\n# Both")
    with pytest.raises(RuntimeError, match="crash"):
        await run(snippet, shop.names)
    assert await shop.orders() == []
    assert await shop.read() == []


async def test_nothing_is_published_when_the_business_data_is_refused(shop: Shop) -> None:
    async with shop.pool.begin() as session:
        await Repository(session).save(shop.order)
    with pytest.raises(IntegrityError):
        await run(SOLUTION, shop.names)
    assert await shop.read() == []


async def test_a_message_is_not_readable_before_its_transaction_commits(shop: Shop) -> None:
    async with shop.session.begin():
        await shop.outbox.publish(shop.session, OutboxMessage("kafka://orders", {"type": "OrderCreated"}))
        assert await shop.read() == []
    assert len(await shop.read()) == 1


async def test_publishing_neither_commits_nor_flushes_nor_rolls_back(shop: Shop) -> None:
    await shop.outbox.publish(shop.session, OutboxMessage("kafka://orders", {"type": "OrderCreated"}))
    assert shop.session.in_transaction()
    await shop.session.rollback()
    assert await shop.read() == []


async def test_a_message_carries_all_that_was_published(shop: Shop) -> None:
    await run(PUBLISHING, shop.names)
    (message,) = await shop.read()
    assert message.payload == {
        "type": "OrderCreated",
        "order_id": str(shop.order.id),
        "customer_id": str(shop.order.customer_id),
        "amount": 100,
    }
    assert list(message.metadata) == ["event_id", "correlation_id", "causation_id"]
    assert (message.metadata["correlation_id"], message.metadata["causation_id"]) == ("correlation", "causation")


async def test_setup_creates_the_tables_under_the_names_given(engine: AsyncEngine, shop: Shop) -> None:
    snippet = SETUP.replace("'outbox'", "'events'").replace("'outbox_o", "'events_o")
    outbox: Outbox = (await run(snippet, shop.names))["outbox"]
    try:
        async with engine.connect() as connection:
            names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        assert {"events", "events_offsets"} <= set(names)
    finally:
        await outbox.cleanup()
        async with engine.begin() as connection:
            await connection.run_sync(outbox.tables.log.metadata.drop_all)


async def test_the_arguments_of_the_setup_are_the_defaults(engine: AsyncEngine) -> None:
    outbox = Outbox(session_pool=engine)
    assert outbox.tables.log.name == "outbox"
    assert outbox.tables.offsets.name == "outbox_offsets"
    assert outbox.options.batch_size == 100


async def test_setup_a_second_time_changes_nothing(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    assert len(await shop.read("broker")) == 1
    await shop.put("kafka://orders", 2)
    again: Outbox = (await run(SETUP, shop.names))["outbox"]
    await again.cleanup()
    await shop.outbox.setup()
    assert await shop.payloads("broker") == [2]


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_batch_is_as_large_as_batch_size_says(engine: AsyncEngine, size: int) -> None:
    async with open_shop(engine, batch_size=size) as shop:
        await shop.put("kafka://orders", *range(150))

        async def handle(message: OutboxMessage) -> None: ...

        assert (await shop.outbox.dispatch(handle)).handled == size


@pytest.mark.parametrize("closed", [False, True], ids=["in use", "cleaned up before"])
async def test_cleanup_closes_the_connections_and_leaves_the_engine_open(shop: Shop, *, closed: bool) -> None:
    await shop.put("kafka://orders", 1)
    await shop.read("one")
    if closed:
        await shop.outbox.cleanup()
    await shop.outbox.cleanup()
    mine = "select count(*) from pg_stat_activity where query like '%outbox_offsets%' and pid <> pg_backend_pid()"
    async with shop.engine.connect() as connection:
        open_connections = (await connection.execute(text(mine))).scalar_one()
    assert open_connections == 0
    # Usable again all the same: connections open on first use.
    assert len(await shop.read("two")) == 1


async def test_any_uri_is_delivered_as_it_was_given(shop: Shop) -> None:
    uris = ["kafka://orders", "kafka://orders/order-123", "amqp://exchange/routing.key", "servicebus://queue-name"]
    for uri in [*uris, "sqs://queue-name"]:
        with case(uri):
            await shop.put(uri, {"type": "OrderCreated"})
            assert [message.uri for message in await shop.read()] == [uri]
            assert [message.uri for message in await shop.read(f"of {uri}", uri)] == [uri]


async def test_the_database_assigns_position_transaction_and_time(shop: Shop) -> None:
    async with shop.session.begin():
        await shop.outbox.publish(shop.session, OutboxMessage("kafka://orders", 1))
        xid = (await shop.session.execute(text("select pg_current_xact_id()::text::bigint"))).scalar_one()
    (message,) = await shop.read()
    assert message.transaction_id == xid
    assert message.position == 1
    assert abs(datetime.now(UTC) - message.created_at) < timedelta(minutes=1)


async def test_an_event_id_is_stored_once(shop: Shop) -> None:
    event_id = str(uuid4())
    async with shop.session.begin():
        await shop.outbox.publish(shop.session, OutboxMessage("kafka://orders", 1, {"event_id": event_id}))
    with pytest.raises(ValueError, match=event_id):
        async with shop.session.begin():
            await shop.outbox.publish(shop.session, OutboxMessage("kafka://orders", 2, {"event_id": event_id}))
    assert await shop.payloads() == [1]


async def test_the_table_of_messages_has_the_documented_columns(shop: Shop) -> None:
    rows = await ask(
        shop.engine,
        "select column_name, is_nullable from information_schema.columns where table_name = 'outbox'"
        " and table_schema = current_schema()",
    )
    columns = {name: nullable == "YES" for name, nullable in rows}
    documented = ("position", "uri", "metadata", "created_at", "transaction_id")
    assert {name: columns[name] for name in documented} == dict.fromkeys(documented, False)
    # Bytes are kept in a column of their own, so that one of the two is null.
    assert columns["payload"]


async def test_the_table_of_offsets_has_a_row_for_each_group_and_uri(shop: Shop) -> None:
    await shop.put("kafka://orders", 1)
    await shop.read("broker")
    await shop.read("broker", "kafka://orders")
    rows = await ask(shop.engine, "select consumer_group, uri, position from outbox_offsets order by 2")
    assert [tuple(row) for row in rows] == [("broker", "", 1), ("broker", "kafka://orders", 1)]
