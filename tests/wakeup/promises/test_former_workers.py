"""Workers of 0.19 beside ours, on one table: they wake by the bare name of a queue, and nobody wakes twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, NullPool, Table, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.wakeup.hint import NAMED, Hint, parsed, payloads
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.events import Events
from faststream_outbox.publish import publish, publish_sync
from tests.publish.ways import plain
from tests.wakeup.conftest import Channel
from tests.wakeup.test_listener import OURSELVES, listening, ready

ORDER = Envelope(queue="orders", body=b"order")
ODD = 'it\'s \\ 100 % "odd"'
PENDING = "create index outbox_pending_idx on outbox (queue, next_attempt_at, id) where acquired_token is null"


@pytest.fixture
def former(table: Table, database_url: URL) -> Table:
    """The table after the first part of the migration from 0.19."""
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(PENDING)
    return table


@pytest.fixture(params=[("asyncpg", {}), ("psycopg", {}), ("asyncpg", {"poolclass": NullPool})])
async def publisher(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """Engines that lend a connection for a NOTIFY, and one that has none to lend."""
    driver, options = request.param
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"), **options)
    yield engine
    await engine.dispose()


async def _publish(engine: AsyncEngine, table: Table, mode: Any, *envelopes: Envelope) -> None:
    wakeups = Wakeups(engine, Names.of(table), Events(), mode)
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, *envelopes, wakeups=wakeups)
    await wakeups.close()


@pytest.mark.parametrize("mode", ["after_commit", "in_transaction"])
async def test_names_follow_while_the_former_index_exists(
    mode: Any, publisher: AsyncEngine, former: Table, channel: Channel, database_url: URL
) -> None:
    later = Envelope(queue="later", body=b"", activate_in=timedelta(minutes=1))
    await _publish(publisher, former, mode, ORDER, Envelope(queue=ODD, body=b""), later)
    reported, *names = channel.heard()
    assert reported.startswith(NAMED)
    assert {hint.queue for hint in parsed(reported)[1]} >= {"orders", ODD}
    assert sorted(names) == sorted(["orders", ODD])
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("drop index outbox_pending_idx")
    await _publish(publisher, former, mode, ORDER)
    (reported,) = channel.heard()
    assert not reported.startswith(NAMED)
    assert parsed(reported)[1][0].queue == "orders"


async def test_names_follow_in_another_schema(publisher: AsyncEngine, former: Table, channel: Channel) -> None:
    names = Names.of(former, schema_map={None: "it's"})
    assert names.former_index == '"it\'s".outbox_pending_idx'
    wakeups = Wakeups(publisher, names, Events())
    async with publisher.begin() as connection:
        await connection.execute(text('create schema "it\'s"'))
        await connection.execute(text(f"create table {names.table} (id int)"))
        await connection.execute(text(f"create index outbox_pending_idx on {names.table} (id)"))
    try:
        wakeups.tell(Hint("orders"))
        await wakeups.close()
        assert channel.heard()[1:] == ["orders"]
    finally:
        async with publisher.begin() as connection:
            await connection.execute(text('drop schema "it\'s" cascade'))


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_names_follow_a_publisher_without_an_event_loop(
    driver: str, engine: AsyncEngine, former: Table, channel: Channel, database_url: URL
) -> None:
    sync = create_engine(database_url.set(drivername=f"postgresql+{driver}"))
    with Session(sync) as session, session.begin():
        publish_sync(session, former, ORDER, wakeups=Wakeups(engine, Names.of(former), Events(), "in_transaction"))
    sync.dispose()
    assert channel.heard()[1:] == ["orders"]


async def test_our_listener_heeds_the_hint_and_not_the_name_that_follows(
    driver_engine: AsyncEngine, former: Table, channel: Channel
) -> None:
    async with listening(driver_engine, former) as heard:
        await ready(heard)
        for _ in range(2):
            await _publish(driver_engine, former, "after_commit", ORDER)
            assert (await heard.hint()).count == 1
            # of a publisher of 0.19, in the same queue
            channel.say("orders")
            assert await heard.hint() == Hint("orders")
        assert heard.hints.empty()


async def test_names_of_our_own_hints_do_not_wake_us_and_the_next_one_does(
    driver_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    async with listening(driver_engine, table) as heard:
        await ready(heard)
        (payload,) = payloads([Hint("orders"), Hint("mails")], sender=OURSELVES)
        channel.say(NAMED + payload[1:])
        for name in ("orders", "mails", "orders"):
            channel.say(name)
        assert await heard.hint() == Hint("orders")
        channel.say(NAMED + payload[1:])
        channel.say("invoices")
        channel.say("orders")
        assert [await heard.hint(), await heard.hint()] == [Hint("invoices"), Hint("orders")]
        await asyncio.sleep(0)
        assert heard.hints.empty()
