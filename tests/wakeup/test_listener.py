"""The listener hears other processes, by the engine's own settings, and comes back whatever happens to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events.types import ListenerDeaf, ListenerLost, ListenerReady
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup import listener as module
from faststream_outbox._internal.wakeup.hint import Hint, HintReceiver, payloads
from faststream_outbox._internal.wakeup.listener import Listener
from faststream_outbox.events import Event, Events
from faststream_outbox.queue import OutboxClient
from faststream_outbox.testing.postgres import PostgresAddress
from tests.publish.ways import plain
from tests.waiting import eventually
from tests.wakeup.conftest import Channel, asleep, pid_of, terminate

LIMIT = 10.0
OURSELVES = "ourselves"
SETTINGS: dict[str, dict[str, Any]] = {
    "asyncpg": {"server_settings": {"application_name": "my own name"}},
    "psycopg": {"application_name": "my own name"},
}
OUR_BACKEND = "application_name like '% my own name'"


@pytest.fixture(params=SETTINGS)
async def named_engine(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An engine on each of the drivers whose backends can be told by their name."""
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, connect_args=SETTINGS[request.param])
    yield engine
    await engine.dispose()


class Heard:
    """A running listener, the hints that it received and the events that it told."""

    def __init__(self, listener: Listener, hints: "asyncio.Queue[Hint]", reported: "asyncio.Queue[Event]") -> None:
        self.listener, self.hints, self.reported = listener, hints, reported

    async def hint(self) -> Hint:
        return await asyncio.wait_for(self.hints.get(), LIMIT)

    async def until(self, kind: type[Any]) -> list[Event]:
        """The events up to and including the first of that type."""
        reported: list[Event] = []
        while not reported or not isinstance(reported[-1], kind):
            reported.append(await asyncio.wait_for(self.reported.get(), LIMIT))
        return reported


@asynccontextmanager
async def listening(engine: AsyncEngine, table: Table, **options: Any) -> AsyncIterator[Heard]:
    hints: asyncio.Queue[Hint] = asyncio.Queue()
    reported: asyncio.Queue[Event] = asyncio.Queue()
    events = Events()
    events.subscribe(reported.put_nowait)
    receiver = HintReceiver(hints.put_nowait, OURSELVES)
    listener = Listener(DedicatedConnection(engine, **options), Names.of(table), events, receiver, OURSELVES)
    task = asyncio.create_task(listener.run())
    try:
        yield Heard(listener, hints, reported)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def ready(heard: Heard) -> None:
    await heard.until(ListenerReady)
    assert heard.listener.is_hearing
    assert await heard.hint() == Hint(None)


async def test_notifications_of_other_connections_are_heard(
    driver_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    (payload,) = payloads([Hint("a", count=3)], sender="another process")
    async with listening(driver_engine, table) as heard:
        await ready(heard)
        for said, hint in ((payload, Hint("a", count=3)), ("orders", Hint("orders")), ("", Hint(None))):
            channel.say(said)
            assert await heard.hint() == hint


async def test_hints_of_this_process_and_hearing_tests_of_others_are_not_heeded(
    driver_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    async with listening(driver_engine, table) as heard:
        await ready(heard)
        channel.say(next(payloads([Hint("own")], sender=OURSELVES)))
        channel.say("outbox-hearing-test:of another process")
        channel.say("other")
        assert await heard.hint() == Hint("other")


async def test_killed_connection_is_replaced_at_once(
    named_engine: AsyncEngine, table: Table, channel: Channel, database_url: URL
) -> None:
    async with listening(named_engine, table) as heard:
        for round_ in range(3):
            await ready(heard)
            # the probe that would notice it otherwise comes much later than the limit of this test
            terminate(database_url, await pid_of(database_url, OUR_BACKEND))
            lost = await heard.until(ListenerLost)
            assert [type(event) for event in lost] == [ListenerLost], round_
        await ready(heard)
        channel.say("orders")
        assert await heard.hint() == Hint("orders")


async def test_failed_opening_is_tried_again(database_url: URL, table: Table, channel: Channel) -> None:
    attempts = 0

    async def connect() -> Any:
        nonlocal attempts
        attempts += 1
        if attempts <= 3:
            raise OSError("not yet")
        return await asyncpg.connect(plain(database_url))

    engine = create_async_engine("postgresql+asyncpg://nowhere.invalid/", async_creator=connect)
    async with listening(engine, table) as heard:
        reported = await heard.until(ListenerReady)
        assert [type(event) for event in reported] == [ListenerLost, ListenerLost, ListenerLost, ListenerReady]
        assert "not yet" in str(reported[0].error)  # type: ignore[union-attr]
        assert await heard.hint() == Hint(None)
        channel.say("orders")
        assert await heard.hint() == Hint("orders")


@pytest.mark.parametrize(
    ("driver", "connect"), [("asyncpg", asyncpg.connect), ("psycopg", psycopg.AsyncConnection.connect)]
)
async def test_async_creator_is_used(driver: str, connect: Any, database_url: URL, table: Table) -> None:
    creator = partial(connect, plain(database_url), **SETTINGS[driver])
    engine = create_async_engine(f"postgresql+{driver}://nowhere.invalid/", async_creator=creator)
    async with listening(engine, table) as heard:
        await ready(heard)
        assert await pid_of(database_url, OUR_BACKEND)


@pytest.mark.parametrize("driver", ["", "asyncpg", "psycopg"])
async def test_listen_dsn_is_dialled_instead_of_the_engines(
    driver: str, engine: AsyncEngine, database_url: URL, table: Table, server: PostgresAddress
) -> None:
    dsn = server.socket_dsn(str(database_url.database), driver)
    async with asleep(engine, table, listen_dsn=dsn, watch=False):
        # the engine's connections come over TCP
        assert await pid_of(database_url, "client_addr is null and backend_type = 'client backend'")


def _deafen(monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> Callable[[], None]:
    """LISTEN is accepted and nothing is delivered, as behind a pooler in transaction mode; returns the cure."""
    listen = DedicatedConnection.listen

    async def nothing(self: DedicatedConnection, *unused: Any) -> None:
        await self.fetch(statements("control", Names("outbox", None, ""))["ping"], {})

    monkeypatch.setattr(DedicatedConnection, "listen", nothing)
    monkeypatch.setattr(module, "HEARING_TEST", seconds)
    monkeypatch.setattr(module, "DEAF_PAUSE", seconds)
    return lambda: monkeypatch.setattr(DedicatedConnection, "listen", listen)


async def test_deafness_is_told_and_tested_again(
    driver_engine: AsyncEngine, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    cure = _deafen(monkeypatch, seconds=0.1)
    async with listening(driver_engine, table) as heard:
        for _ in range(2):
            assert await asyncio.wait_for(heard.reported.get(), LIMIT) == ListenerDeaf("outbox_outbox")
            assert not heard.listener.is_hearing
        assert heard.hints.empty()
        cure()
        monkeypatch.setattr(module, "HEARING_TEST", 5.0)
        await ready(heard)


async def test_quiet_connection_is_asked_now_and_then(
    driver_engine: AsyncEngine, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_INTERVAL", 0.1)
    asked: list[str] = []
    async with listening(driver_engine, table) as heard:
        await ready(heard)
        fetch = DedicatedConnection.fetch

        async def failing(self: DedicatedConnection, statement: Any, values: Any) -> Any:
            asked.append(statement.name)
            monkeypatch.setattr(DedicatedConnection, "fetch", fetch)
            raise TimeoutError("no answer")

        monkeypatch.setattr(DedicatedConnection, "fetch", failing)
        (lost,) = await heard.until(ListenerLost)
        assert str(lost.error) == "no answer"  # type: ignore[union-attr]
        await ready(heard)
    assert asked == ["ping"]


async def test_stopped_listener_leaves_no_connection(
    named_engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with listening(named_engine, table) as heard:
        await ready(heard)
        pid = await pid_of(database_url, OUR_BACKEND)
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        await eventually(
            lambda: not connection.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall(),
            message="the backend of the listener is gone",
        )


async def test_client_opens_its_listener_with_the_first_worker_only(engine: AsyncEngine, table: Table) -> None:
    client = OutboxClient(engine, table)
    assert not client.listener.is_hearing
    async with asleep(engine, table) as (running, _):
        assert running.listener.is_hearing
    assert not running.listener.is_hearing
