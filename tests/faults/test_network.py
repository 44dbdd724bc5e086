"""The network between a worker and PostgreSQL cuts, swallows or answers nothing; the worker recovers by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import MetaData, Table, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.wakeup import listener
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.faults.business import Business, Habit
from tests.faults.child import PLAIN
from tests.faults.proxy import Proxy, Way, proxy_to
from tests.faults.scene import Scene
from tests.waiting import eventually

pytestmark = pytest.mark.faults

STATEMENT_TIMEOUT = 1.0


@pytest.fixture
async def proxy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """The way to the server, for a library that gives a statement one second instead of thirty."""
    for making in (DedicatedConnection.__init__, OutboxClient._connection):
        monkeypatch.setitem(making.__kwdefaults__, "timeout", STATEMENT_TIMEOUT)
    monkeypatch.setattr(listener, "PROBE_INTERVAL", 0.5)
    async with proxy_to(make_url(scene.world).port or 5432) as proxy:
        yield proxy


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far_engine(request: pytest.FixtureRequest, scene: Scene, proxy: Proxy) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections go through the proxy."""
    url = make_url(scene.world).set(drivername=f"postgresql+{request.param}", port=proxy.port)
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


class Crew:
    """A worker at the far end, and the record of its runs, kept at the near one."""

    def __init__(self, engine: AsyncEngine, scene: Scene, **settings: Any) -> None:
        metadata = MetaData()
        self.table: Table = make_outbox_table(metadata)
        self.client = OutboxClient(engine, self.table, dlq_table=make_dlq_table(metadata), **settings)
        self.runs: dict[int, int] = {}
        self.tokens: set[UUID] = set()
        """Of claims that it heard the answer of."""
        self.events: list[Any] = []
        self.before: Callable[[], None] = lambda: None
        known = (events.Handled, events.LeaseWasLost, events.ListenerReady, events.ListenerLost)
        self.client.events.subscribe(self.events.append, *known)
        options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.2, "max_workers": 4}
        self.worker = Worker(engine, self.table, PLAIN, self.handle, client=self.client, **options)

    async def handle(self, claim: Claim) -> Outcome:
        self.runs[claim.id] = self.runs.get(claim.id, 0) + 1
        self.tokens.add(claim.acquired_token)
        self.before()
        return DONE

    def reported(self, kind: type[Any]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


@pytest.fixture
async def crew(far_engine: AsyncEngine, scene: Scene) -> AsyncIterator[Crew]:
    crew = Crew(far_engine, scene)
    await crew.worker.start()
    await eventually(lambda: crew.reported(events.ListenerReady), message="the worker listens")
    yield crew
    await crew.worker.stop()


async def all_handled(scene: Scene, crew: Crew) -> None:
    await eventually(lambda: scene.left() == 0, message="everything is handled and settled")
    committed = scene.ask("select count(*) from orders")[0][0]
    assert len(crew.runs) == committed


async def test_nothing_is_lost_when_connections_are_cut(
    scene: Scene, business: Business, proxy: Proxy, crew: Crew
) -> None:
    load = asyncio.create_task(business.publish_for(Habit(PLAIN, pause=0.01), 3.0))
    cuts = 0
    while not load.done():
        await asyncio.sleep(0.25)
        cuts += proxy.cut()
    await load
    await all_handled(scene, crew)
    print(f"{cuts} connections cut, {len(crew.runs)} messages, {sum(crew.runs.values())} runs")
    assert cuts > 0


@pytest.mark.parametrize("way", [Way.BLACK_HOLE, Way.DEAF])
async def test_nothing_is_lost_when_the_network_swallows(
    scene: Scene, business: Business, proxy: Proxy, crew: Crew, way: Way
) -> None:
    load = asyncio.create_task(business.publish_for(Habit(PLAIN, pause=0.01), 4.0))
    await asyncio.sleep(0.5)
    proxy.way = way
    await asyncio.sleep(2.5 * STATEMENT_TIMEOUT)
    proxy.way = Way.OPEN
    await load
    await all_handled(scene, crew)
    print(f"{proxy.swallowed} bytes swallowed, {len(crew.runs)} messages, {sum(crew.runs.values())} runs")
    assert proxy.swallowed > 0


async def test_leases_are_respected_through_cuts_and_silence(
    scene: Scene, business: Business, proxy: Proxy, crew: Crew
) -> None:
    load = asyncio.create_task(business.publish_for(Habit(PLAIN, keys=4, pause=0.01), 4.0))
    for way in (Way.DEAF, Way.OPEN, Way.BLACK_HOLE, Way.OPEN):
        await asyncio.sleep(1.2 * STATEMENT_TIMEOUT)
        proxy.way = way
        proxy.cut()
    await load
    await all_handled(scene, crew)
    # A claim whose answer was lost is claimed again by the one who made it, at once: nobody holds that lease.
    account = scene.account(heard=crew.tokens)
    print(f"{len(crew.runs)} messages, {len(account.stolen)} leases stolen, {len(account.abreast)} keys abreast")
    assert (account.stolen, account.abreast) == ((), ())


async def test_settle_whose_answer_was_lost_is_told_as_handled_once(
    scene: Scene, business: Business, proxy: Proxy, far_engine: AsyncEngine
) -> None:
    def go_deaf() -> None:
        proxy.way = Way.DEAF

    # Nothing but the settle uses its connection, and it has been prepared by a first message.
    crew = Crew(far_engine, scene, listen=False, watch=False)
    await crew.worker.start()
    await business.publish(Habit(PLAIN, most=1, rollbacks=0.0), transactions=1)
    await eventually(lambda: crew.reported(events.Handled), message="a first message is handled")
    crew.before = go_deaf
    await business.publish(Habit(PLAIN, most=1, rollbacks=0.0), transactions=1, name=1)
    await eventually(lambda: proxy.way is Way.DEAF and scene.left() == 0, message="the settle reaches the server")
    told_before = crew.reported(events.Handled)
    proxy.way = Way.OPEN
    await eventually(lambda: crew.reported(events.Handled) > told_before, message="the outcome is told")
    await crew.worker.stop()
    assert (told_before, crew.reported(events.Handled), crew.reported(events.LeaseWasLost)) == (1, 2, 0)
    assert set(crew.runs.values()) == {1}


async def test_listener_that_died_silently_is_replaced(proxy: Proxy, crew: Crew) -> None:
    before = crew.reported(events.ListenerReady)
    proxy.way = Way.BLACK_HOLE
    await eventually(lambda: crew.reported(events.ListenerLost) > 0, message="the silence is noticed")
    proxy.way = Way.OPEN
    await eventually(lambda: crew.reported(events.ListenerReady) > before, message="the worker listens again")


async def test_worker_stops_in_time_when_the_server_is_out_of_reach(proxy: Proxy, crew: Crew) -> None:
    proxy.way = Way.BLACK_HOLE
    loop = asyncio.get_running_loop()
    began = loop.time()
    await crew.worker.stop(timeout=1.0)
    # On a machine that is very busy; a connection that nobody gives up takes a minute.
    assert loop.time() - began < 20.0
