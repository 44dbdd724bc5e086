"""A worker that sleeps so deeply that only a wake-up can have woken it, and an ear on the channel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import ListenerReady
from faststream_outbox._internal.wakeup import wakeups as notifier
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from tests.publish.ways import plain
from tests.waiting import PATIENCE_SECONDS, eventually

END = "end of what was sent before"


@pytest.fixture(autouse=True)
def patient_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was flushed has left, also on a machine that is busy: an application would not wait for so long."""
    monkeypatch.setattr(notifier, "FLUSH_SECONDS", PATIENCE_SECONDS)


class Channel:
    """What a stranger's connection hears on the table's channel."""

    def __init__(self, url: URL, name: str) -> None:
        self._name = name
        self._ear = psycopg.connect(plain(url), autocommit=True)
        self._mouth = psycopg.connect(plain(url), autocommit=True)
        self._ear.execute(f"listen {name}")

    def heard(self) -> list[str]:
        """The payloads of everything that was committed until now."""
        self._mouth.execute("select pg_notify(%s, %s)", [self._name, END])
        payloads: list[str] = []
        for notify in self._ear.notifies(timeout=10):
            if notify.payload == END:
                return payloads
            payloads.append(notify.payload)
        pytest.fail("the channel's end mark did not come")

    def say(self, payload: str) -> None:
        self._mouth.execute("select pg_notify(%s, %s)", [self._name, payload])

    def close(self) -> None:
        self._ear.close()
        self._mouth.close()


@pytest.fixture
def channel(database_url: URL, table: Table) -> Iterator[Channel]:
    channel = Channel(database_url, "outbox_outbox")
    yield channel
    channel.close()


async def quiet(client: OutboxClient, seconds: float = 0.2) -> None:
    """Wait until the claimer has slept for so long."""
    connection: Any = client._claim_connection
    fetch, calls = connection.fetch, 0

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await fetch(*args)

    connection.fetch = counted
    try:
        seen = -1
        while seen != calls:
            seen = calls
            await asyncio.sleep(seconds)
    finally:
        connection.fetch = fetch


Sleeper = Callable[..., Any]


@asynccontextmanager
async def asleep(
    engine: AsyncEngine, table: Table, **options: Any
) -> AsyncIterator[tuple[OutboxClient, "asyncio.Queue[Claim]"]]:
    """A worker of the queue `orders` that polls once a minute and has nothing to do, and what it handles."""
    handled: asyncio.Queue[Claim] = asyncio.Queue()
    ready = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        handled.put_nowait(claim)
        return DONE

    client = OutboxClient(engine, table, **options)
    client.events.subscribe(lambda _: ready.set(), ListenerReady)
    worker = Worker(engine, table, "orders", handle, client=client, min_fetch_interval=60.0, max_fetch_interval=60.0)
    await worker.start()
    try:
        if options.get("listen", True):
            await asyncio.wait_for(ready.wait(), 30)
        await quiet(client)
        yield client, handled
    finally:
        await worker.stop()


async def pid_of(url: URL, where: str) -> int:
    """The process id of the one other backend of this database of which `where` is true, when there is one."""
    sql = (
        f"select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and ({where})"
    )
    async with await psycopg.AsyncConnection.connect(plain(url), autocommit=True) as connection:

        async def found() -> Any:
            backends = await (await connection.execute(sql)).fetchall()  # type: ignore[arg-type]
            # One of a test before may still be on its way out.
            return backends if len(backends) == 1 else None

        ((pid,),) = await eventually(found, message=f"a backend where {where}")
    return int(pid)


def terminate(url: URL, pid: int) -> None:
    with psycopg.connect(plain(url), autocommit=True) as connection:
        assert connection.execute("select pg_terminate_backend(%s)", [pid]).fetchall() == [(True,)]
