"""PostgreSQL dies at once and comes back; workers recover by themselves, and finished work is not done again."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer
from tests.faults.business import Business, Habit
from tests.faults.child import EFFECTS, PLAIN, Part
from tests.faults.conftest import LEASE_SECONDS
from tests.faults.processes import Troupe
from tests.faults.scene import Scene
from tests.waiting import eventually

pytestmark = pytest.mark.faults

CRASHES = 2


@pytest.fixture
def scene(private_server: PostgresServer, record: str) -> Iterator[Scene]:
    """The outbox in a server of its own; what workers handled is kept in another one."""
    scene = Scene(private_server.dsn(driver=""), record, LEASE_SECONDS)
    scene.set_up()
    yield scene
    scene.tear_down()


async def test_workers_recover_from_crashes_under_load(
    private_server: PostgresServer, scene: Scene, business: Business, children: Troupe, seed: int
) -> None:
    options = {"lease_ttl_seconds": scene.lease_seconds, "max_workers": 4}
    parts = [
        Part(scene.world, scene.record, [PLAIN, EFFECTS], seed, driver, longest=0.01, retries=0.1, options=options)
        for driver in ("asyncpg", "psycopg")
    ]
    await children.start(*parts)
    habits = [Habit(PLAIN), Habit(PLAIN, keys=5), Habit(EFFECTS)]
    load = [asyncio.create_task(business.publish_for(habit, 6.0, name=number)) for number, habit in enumerate(habits)]
    for _ in range(CRASHES):
        await asyncio.sleep(2.0)
        await asyncio.to_thread(private_server.crash)
        await asyncio.to_thread(private_server.restart)
    await asyncio.gather(*load)
    await scene.is_finished()
    account = scene.account()
    print(account, f"{business.refused} transactions refused", sep="; ")
    assert len(children.alive) == len(parts)
    assert business.refused > 0
    assert not account.wrongs()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def engine(request: pytest.FixtureRequest, scene: Scene) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(scene.world.replace("postgresql://", f"postgresql+{request.param}://"))
    yield engine
    await engine.dispose()


class Handler:
    """Runs until it is let go, and counts."""

    def __init__(self) -> None:
        self.runs = 0
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, claim: Claim) -> Outcome:
        self.runs += 1
        self.began.set()
        await self.may_end.wait()
        return DONE


@pytest.fixture
async def handler() -> Handler:
    return Handler()


@pytest.fixture
async def client(engine: AsyncEngine, handler: Handler) -> AsyncIterator[OutboxClient]:
    """A worker with a message in flight, under the lease of a minute."""
    metadata = MetaData()
    table = make_outbox_table(metadata)
    client = OutboxClient(engine, table, dlq_table=make_dlq_table(metadata))
    worker = Worker(engine, table, PLAIN, handler, client=client)
    await worker.start()
    async with engine.begin() as connection:
        await publish(connection, table, Envelope(queue=PLAIN, body=b"1"), wakeups=client.wakeups)
    await handler.began.wait()
    yield client
    await worker.stop()


async def test_message_that_ended_while_the_server_was_down_is_settled_without_a_second_run(
    private_server: PostgresServer, scene: Scene, client: OutboxClient, handler: Handler
) -> None:
    handled: asyncio.Queue[events.Handled] = asyncio.Queue()
    failed = asyncio.Event()
    client.events.subscribe(handled.put_nowait, events.Handled)
    client.events.subscribe(lambda lost: failed.set() if lost.role == "settle" else None, events.StatementFailed)
    await asyncio.to_thread(private_server.crash)
    handler.may_end.set()
    await failed.wait()
    await asyncio.to_thread(private_server.restart)
    async with asyncio.timeout(30):
        await handled.get()
    assert (handler.runs, scene.left()) == (1, 0)


async def test_settle_that_the_crash_interrupted_is_written_without_a_second_run(
    private_server: PostgresServer, scene: Scene, engine: AsyncEngine, client: OutboxClient, handler: Handler
) -> None:
    handled: asyncio.Queue[events.Handled] = asyncio.Queue()
    client.events.subscribe(handled.put_nowait, events.Handled)
    async with engine.connect() as holder:
        await holder.execute(text("select from outbox for update"))
        handler.may_end.set()
        waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ilike 'delete from outbox%'"
        await eventually(lambda: scene.ask(waits), message="the settle waits for the row")
        await asyncio.to_thread(private_server.crash)
        await holder.invalidate()
    await asyncio.to_thread(private_server.restart)
    async with asyncio.timeout(30):
        await handled.get()
    assert (handler.runs, scene.left()) == (1, 0)
