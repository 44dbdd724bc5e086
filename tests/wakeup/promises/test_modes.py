"""Who is woken by what: the three modes, from this process, from another, and from publishers that cannot tell.

The worker polls once a minute, so what it handles within the limit it was woken for.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Engine, Table, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.events.types import LoopCrashed, StatementFailed
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.wakeup.hint import parsed
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.events import Event, Events
from faststream_outbox.publish import publish, publish_sync
from faststream_outbox.queue import Claim, OutboxClient
from tests.publish.ways import plain
from tests.wakeup.conftest import Channel, asleep

LIMIT = 25.0
"""Seconds, on a machine that is very busy: less than what the worker polls after, and than the later of two timers."""
ORDER = Envelope(queue="orders", body=b"order")


async def _handled(queue: "asyncio.Queue[Claim]", limit: float = LIMIT) -> bytes:
    return (await asyncio.wait_for(queue.get(), limit)).payload


async def _commit(engine: AsyncEngine, table: Table, wakeups: Wakeups, *envelopes: Envelope) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, *envelopes, wakeups=wakeups)


DEAF = {"watch": False, "listen": False}


@pytest.mark.parametrize(
    ("mode", "elsewhere", "senses"),
    [
        ("after_commit", False, DEAF),
        ("in_transaction", False, {"watch": False}),
        ("off", False, DEAF),
        ("after_commit", True, {"watch": False}),
        ("in_transaction", True, {"watch": False}),
        ("off", True, {"listen": False}),
    ],
)
async def test_session_wakes_workers_here_and_elsewhere(
    mode: Any, elsewhere: bool, senses: dict[str, Any], driver_engine: AsyncEngine, table: Table
) -> None:
    """As another process would, a client publishes that has nothing in common with the worker's."""
    async with asleep(driver_engine, table, notify=mode, **senses) as (client, handled):
        publisher = OutboxClient(driver_engine, table, notify=mode) if elsewhere else client
        await _commit(driver_engine, table, publisher.wakeups, ORDER)
        assert await _handled(handled) == b"order"
        await publisher.wakeups.close()


async def test_thread_without_an_event_loop_wakes(
    engine: AsyncEngine, sync_engine: Engine, table: Table, channel: Channel
) -> None:
    async with asleep(engine, table, watch=False, listen=False) as (client, handled):

        def work() -> None:
            with Session(sync_engine) as session, session.begin():
                publish_sync(session, table, ORDER, wakeups=client.wakeups)

        thread = threading.Thread(target=work)
        thread.start()
        assert await _handled(handled) == b"order"
        thread.join()
        await client.wakeups.notifier(asyncio.get_running_loop()).flush()
    assert sum(hint.count for payload in channel.heard() for hint in parsed(payload)[1]) == 1


async def test_publisher_on_another_event_loop_wakes_and_harms_nothing(
    driver_engine: AsyncEngine, database_url: URL, table: Table, channel: Channel
) -> None:
    async def elsewhere(wakeups: Wakeups) -> None:
        engine = create_async_engine(database_url)
        await _commit(engine, table, wakeups, ORDER)
        await wakeups.notifier(asyncio.get_running_loop()).flush()
        await engine.dispose()

    failures: list[Event] = []
    async with asleep(driver_engine, table, watch=False, listen=False) as (client, handled):
        client.events.subscribe(failures.append, StatementFailed, LoopCrashed)
        for _ in range(3):
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(client.wakeups)))
            assert await _handled(handled) == b"order"
        await client.wakeups.notifier(asyncio.get_running_loop()).flush()
    assert failures == []
    assert sum(hint.count for payload in channel.heard() for hint in parsed(payload)[1]) == 3


async def publish_on_a_raw_connection(engine: AsyncEngine, table: Table, wakeups: Wakeups, handled: Any) -> None:
    connection = await asyncpg.connect(plain(engine.url))
    async with connection.transaction():
        await publish(connection, table, ORDER)
    await connection.close()


async def publish_on_a_bare_connection(engine: AsyncEngine, table: Table, wakeups: Wakeups, handled: Any) -> None:
    async with engine.begin() as connection:
        await publish(connection, table, ORDER, wakeups=wakeups)


async def commit_well_after_the_insert(engine: AsyncEngine, table: Table, wakeups: Wakeups, handled: Any) -> None:
    with psycopg.connect(plain(engine.url)) as connection:
        connection.execute("insert into outbox (queue, payload) values ('orders', 'order')")
        await asyncio.sleep(0.4)
        assert handled.empty()


async def autocommit_with_a_transaction_open(engine: AsyncEngine, table: Table, wakeups: Wakeups, handled: Any) -> None:
    connection = await psycopg.AsyncConnection.connect(plain(engine.url), autocommit=True)
    async with connection, connection.transaction():
        await publish(connection, table, ORDER, wakeups=wakeups)
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "course",
    [
        publish_on_a_raw_connection,
        publish_on_a_bare_connection,
        pytest.param(commit_well_after_the_insert, marks=pytest.mark.slow),
        pytest.param(autocommit_with_a_transaction_open, marks=pytest.mark.slow),
    ],
    ids=lambda course: course.__name__,
)
async def test_what_nobody_tells_of_is_found_by_the_watcher(
    course: Any, driver_engine: AsyncEngine, table: Table
) -> None:
    async with asleep(driver_engine, table, listen=False) as (client, handled):
        await course(driver_engine, table, client.wakeups, handled)
        assert await _handled(handled) == b"order"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["after_commit", "in_transaction", "off"])
async def test_timer_fires_on_time_in_every_mode(mode: Any, engine: AsyncEngine, table: Table) -> None:
    timer = Envelope(queue="orders", body=b"timer", activate_in=timedelta(seconds=0.5))
    async with asleep(engine, table, notify=mode) as (client, handled):
        await _commit(engine, table, client.wakeups, timer)
        assert await _handled(handled) == b"timer"


@pytest.mark.slow
async def test_earlier_timer_overtakes_a_later_one(engine: AsyncEngine, table: Table) -> None:
    async with asleep(engine, table, **DEAF) as (client, handled):
        for body, seconds in ((b"later", 30.0), (b"sooner", 0.5)):
            timer = Envelope(queue="orders", body=body, activate_in=timedelta(seconds=seconds))
            await _commit(engine, table, client.wakeups, timer)
        assert await _handled(handled) == b"sooner"


async def test_in_transaction_notifies_with_the_commit(engine: AsyncEngine, table: Table, channel: Channel) -> None:
    wakeups = Wakeups(engine, Names.of(table), Events(), "in_transaction")
    async with AsyncSession(engine) as session:
        await publish(session, table, ORDER, ORDER, wakeups=wakeups)
        assert channel.heard() == []
        await session.commit()
        await publish(session, table, ORDER, wakeups=wakeups)
        await session.rollback()
    heard = [parsed(payload)[1] for payload in channel.heard()]
    assert [[(hint.queue, hint.count) for hint in hints] for hints in heard] == [[("orders", 2)]]


LATER = Envelope(queue="orders", body=b"", activate_in=timedelta(minutes=1))
PRIORITIES = [Envelope(queue="orders", body=b"", priority=number) for number in range(3000)]


@pytest.mark.parametrize(("envelopes", "told"), [([LATER], 0), ([LATER, LATER], 0), (PRIORITIES, 3000)])
async def test_in_transaction_tells_of_what_is_due_whatever_its_number(
    envelopes: list[Envelope], told: int, engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    await _commit(engine, table, Wakeups(engine, Names.of(table), Events(), "in_transaction"), *envelopes)
    assert sum(hint.count for payload in channel.heard() for hint in parsed(payload)[1]) == told


async def test_in_transaction_through_a_raw_connection_notifies(
    database_url: URL, engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    wakeups = Wakeups(engine, Names.of(table), Events(), "in_transaction")
    connection = await asyncpg.connect(plain(database_url))
    async with connection.transaction():
        await publish(connection, table, ORDER, wakeups=wakeups)
    await connection.close()
    assert len(channel.heard()) == 1


@pytest.mark.parametrize(("mode", "notifications"), [("after_commit", 1), ("off", 0)])
async def test_publishers_own_transaction_never_notifies(
    mode: Any, notifications: int, engine: AsyncEngine, psycopg_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    sent: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
    wakeups = Wakeups(psycopg_engine, Names.of(table), Events(), mode)
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, ORDER, wakeups=wakeups)
        await publish(session, table, ORDER, ORDER, wakeups=wakeups)
    await wakeups.notifier(asyncio.get_running_loop()).flush()
    assert [statement.split()[0] for statement in sent] == ["insert", "insert"]
    assert len(channel.heard()) == notifications
