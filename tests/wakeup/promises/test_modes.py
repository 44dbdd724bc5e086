"""Who is woken by what: the three modes, from this process, from another, and from publishers that cannot tell.

The worker polls once a minute, so what it handles within the limit it was woken for.
"""

import asyncio
import sys
import threading
from datetime import timedelta
from pathlib import Path
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
from faststream_outbox.queue import Claim
from tests.publish.ways import plain
from tests.wakeup.conftest import Channel, asleep

LIMIT = 25.0
"""Seconds, on a machine that is very busy: less than what the worker polls after, and than the later of two timers."""
ORDER = Envelope(queue="orders", body=b"order")

ANOTHER_PROCESS = """
import asyncio, sys
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import OutboxClient
from faststream_outbox.schema import make_outbox_table

async def main(url, mode):
    engine, table = create_async_engine(url), make_outbox_table(MetaData())
    client = OutboxClient(engine, table, notify=mode)
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, Envelope(queue="orders", body=b"order"), wakeups=client.wakeups)
    print("committed", flush=True)
    await client.wakeups.notifier(asyncio.get_running_loop()).flush()
    await engine.dispose()

asyncio.run(main(*sys.argv[1:]))
"""


async def _handled(queue: "asyncio.Queue[Claim]", limit: float = LIMIT) -> bytes:
    return (await asyncio.wait_for(queue.get(), limit)).payload


async def _publish_in_another_process(url: URL, mode: str) -> None:
    dsn = url.render_as_string(hide_password=False)
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ANOTHER_PROCESS, dsn, mode, stdout=asyncio.subprocess.PIPE, cwd=root
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"committed\n"
    assert await process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "senses"),
    [
        ("after_commit", {"watch": False}),
        ("in_transaction", {"watch": False}),
        ("off", {"listen": False}),
    ],
)
async def test_another_process_wakes(
    mode: str, senses: dict[str, Any], engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with asleep(engine, table, **senses) as (_, handled):
        await _publish_in_another_process(database_url, mode)
        assert await _handled(handled) == b"order"


@pytest.mark.parametrize(
    ("mode", "senses"),
    [
        ("after_commit", {"watch": False, "listen": False}),
        ("in_transaction", {"watch": False}),
        ("off", {"watch": False, "listen": False}),
    ],
)
async def test_session_of_the_same_process_wakes(
    mode: Any, senses: dict[str, Any], driver_engine: AsyncEngine, table: Table
) -> None:
    async with asleep(driver_engine, table, notify=mode, **senses) as (client, handled):
        async with AsyncSession(driver_engine) as session, session.begin():
            await publish(session, table, ORDER, wakeups=client.wakeups)
        assert await _handled(handled) == b"order"


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
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, ORDER, wakeups=wakeups)
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


async def test_raw_connection_is_found_by_the_watcher(
    driver_engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with asleep(driver_engine, table, listen=False) as (_, handled):
        connection = await asyncpg.connect(plain(database_url))
        async with connection.transaction():
            await publish(connection, table, ORDER)
        assert await _handled(handled) == b"order"
        await connection.close()


async def test_bare_connection_is_found_by_the_watcher(engine: AsyncEngine, table: Table) -> None:
    async with asleep(engine, table, listen=False) as (client, handled):
        async with engine.begin() as connection:
            await publish(connection, table, ORDER, wakeups=client.wakeups)
        assert await _handled(handled) == b"order"


@pytest.mark.slow
async def test_row_that_is_committed_well_after_its_insert_is_found_by_the_watcher(
    engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with asleep(engine, table, listen=False) as (_, handled):
        with psycopg.connect(plain(database_url)) as connection:
            connection.execute("insert into outbox (queue, payload) values ('orders', 'order')")
            await asyncio.sleep(0.4)
            assert handled.empty()
        assert await _handled(handled) == b"order"


@pytest.mark.slow
async def test_autocommitting_connection_with_a_transaction_open_is_found(
    engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with (
        asleep(engine, table, listen=False) as (client, handled),
        await psycopg.AsyncConnection.connect(plain(database_url), autocommit=True) as connection,
    ):
        async with connection.transaction():
            await publish(connection, table, ORDER, wakeups=client.wakeups)
            await asyncio.sleep(0.2)
        assert await _handled(handled) == b"order"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["after_commit", "in_transaction", "off"])
async def test_timer_fires_on_time_in_every_mode(mode: Any, engine: AsyncEngine, table: Table) -> None:
    timer = Envelope(queue="orders", body=b"timer", activate_in=timedelta(seconds=0.5))
    async with asleep(engine, table, notify=mode) as (client, handled):
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, timer, wakeups=client.wakeups)
        assert await _handled(handled) == b"timer"


@pytest.mark.slow
async def test_earlier_timer_overtakes_a_later_one(engine: AsyncEngine, table: Table) -> None:
    async with asleep(engine, table, watch=False, listen=False) as (client, handled):
        for body, seconds in ((b"later", 30.0), (b"sooner", 0.5)):
            timer = Envelope(queue="orders", body=body, activate_in=timedelta(seconds=seconds))
            async with AsyncSession(engine) as session, session.begin():
                await publish(session, table, timer, wakeups=client.wakeups)
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


async def test_in_transaction_sends_nothing_for_later(engine: AsyncEngine, table: Table, channel: Channel) -> None:
    wakeups = Wakeups(engine, Names.of(table), Events(), "in_transaction")
    later = Envelope(queue="orders", body=b"", activate_in=timedelta(minutes=1))
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, later, wakeups=wakeups)
        await publish(session, table, later, later, wakeups=wakeups)
    assert channel.heard() == []


async def test_in_transaction_with_very_many_priorities_commits(
    engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    wakeups = Wakeups(engine, Names.of(table), Events(), "in_transaction")
    envelopes = [Envelope(queue="orders", body=b"", priority=number) for number in range(3000)]
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, *envelopes, wakeups=wakeups)
    heard = [parsed(payload)[1] for payload in channel.heard()]
    assert sum(hint.count for hints in heard for hint in hints) == 3000


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


@pytest.mark.slow
async def test_worker_that_hears_twice_handles_once(engine: AsyncEngine, table: Table, channel: Channel) -> None:
    async with asleep(engine, table) as (client, handled):
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, ORDER, wakeups=client.wakeups)
        assert await _handled(handled) == b"order"
        for _ in range(3):
            channel.say("orders")
            channel.say("")
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, Envelope(queue="orders", body=b"next"), wakeups=client.wakeups)
        assert await _handled(handled) == b"next"
        assert handled.empty()
