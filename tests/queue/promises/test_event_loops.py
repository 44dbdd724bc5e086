"""Event loops one after the other in one program: workers and brokers go on in each, also where nobody stopped them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import OutboxClient, Worker
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Seen, done
from tests.waiting import eventually

MESSAGES = 20


@pytest.fixture(params=["asyncpg", "psycopg"])
def loose_engine(request: pytest.FixtureRequest, database_url: URL) -> AsyncEngine:
    """An engine that keeps no connection, as one must be that serves several loops."""
    return create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"), poolclass=NullPool)


@pytest.fixture(params=["stopped", "left"])
def is_stopped(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "stopped")


@pytest.fixture(autouse=True)
def no_loop_of_the_tests() -> Iterator[None]:
    """Each `asyncio.run` ends with no loop set."""
    yield
    asyncio.set_event_loop_policy(None)


@pytest.fixture
def client(loose_engine: AsyncEngine, table: Table, dlq_table: Table) -> OutboxClient:
    return OutboxClient(loose_engine, table, dlq_table=dlq_table)


def worker_of(client: OutboxClient, handle: Any = done, **options: Any) -> Worker:
    return Worker(client.engine, client.table, "orders", handle, client=client, **options)


async def put(client: OutboxClient) -> None:
    async with AsyncSession(client.engine) as session, session.begin():
        await publish(session, client.table, Envelope(queue="orders", body=b""), wakeups=client.wakeups)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(40):
            await scene()

    asyncio.run(within())


async def is_empty(client: OutboxClient) -> bool:
    async with client.engine.connect() as connection:
        return not (await connection.execute(text(f"select count(*) from {client.table.name}"))).scalar_one()


async def is_known(client: OutboxClient) -> bool:
    """Whether the server knows who claims by the client's worker id."""
    names = text("select count(*) from pg_stat_activity where application_name like :name")
    async with client.engine.connect() as connection:
        name = {"name": f"outbox {client.identity.worker_id} claim %"}
        return int((await connection.execute(names, name)).scalar_one()) == 1


@pytest.mark.slow
def test_a_worker_works_in_each_as_somebody_else(client: OutboxClient, *, is_stopped: bool) -> None:
    handle = Seen()
    worker = worker_of(client, handle, max_workers=3)
    who: list[str] = []

    async def scene() -> None:
        handle.claims.clear()
        await worker.start()
        for _ in range(MESSAGES):
            await put(client)
        await eventually(partial(is_empty, client))
        who.append(client.identity.worker_id)
        assert await is_known(client)
        if is_stopped:
            await worker.stop()

    for _ in range(3):
        run(scene)
        assert len({claim.id for claim in handle.claims}) == len(handle.claims) == MESSAGES
        assert {str(claim.acquired_token)[:8] for claim in handle.claims} == {who[-1]}
    assert len(set(who)) == 3


@pytest.mark.slow
def test_a_broker_works_in_each(client: OutboxClient, *, is_stopped: bool) -> None:
    handled: list[int] = []
    broker = OutboxBroker(client.engine, outbox_table=client.table, dlq_table=client.dlq_table, logger=None)

    @broker.subscriber("orders", max_workers=3)
    async def handle(body: int) -> None:
        handled.append(body)

    async def scene() -> None:
        await broker.start()
        for number in range(MESSAGES):
            async with AsyncSession(client.engine) as session, session.begin():
                await broker.publish(number, queue="orders", session=session)
        await eventually(partial(is_empty, client))
        assert await broker.ping()
        if is_stopped:
            await broker.stop()

    for count in (1, 2):
        run(scene)
        assert len(handled) == count * MESSAGES


def test_what_a_loop_left_behind_can_be_stopped_in_the_next(client: OutboxClient) -> None:
    worker = worker_of(client)
    run(worker.start)
    run(worker.stop)
    assert not worker.is_running


def test_workers_of_one_client_do_not_run_in_two_loops_at_once(client: OutboxClient) -> None:
    one, two = worker_of(client), worker_of(client)

    async def scene() -> None:
        await one.start()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, two.start())
        await one.stop()

    run(scene)


def test_what_was_handled_is_written_although_its_loop_ends_without_a_stop(
    client: OutboxClient, intercept: Intercept
) -> None:
    """The program ends at the moment at which the outcome is on its way."""
    sent = asyncio.Event()

    @intercept
    async def slow(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "settle_done" and not sent.is_set():
            sent.set()
            await asyncio.Event().wait()
        return await send()

    async def scene() -> None:
        await worker_of(client).start()
        await put(client)
        await sent.wait()

    run(scene)
    assert asyncio.run(is_empty(client))
