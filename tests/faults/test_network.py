"""The network between a worker and PostgreSQL cuts, swallows or answers nothing; the worker recovers by itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.wakeup import listener
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.faults.business import Business, Habit
from tests.faults.child import PLAIN
from tests.faults.conftest import LEASE_SECONDS
from tests.faults.proxy import Proxy, Way
from tests.faults.scene import Scene
from tests.queue.rig import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.faults

STATEMENT_TIMEOUT = 1.5
OPTIONS: dict[str, Any] = {"lease_ttl_seconds": LEASE_SECONDS, "max_workers": 4}
OPTIONS |= {"min_fetch_interval": 0.2, "max_fetch_interval": 1.0}
ONE = Habit(PLAIN, most=1, rollbacks=0.0)


@pytest.fixture
async def rig(scene: Scene, far_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A client at the far end, which does not wait as long for an answer as others."""
    for making in (DedicatedConnection.__init__, OutboxClient._connection):
        monkeypatch.setitem(making.__kwdefaults__, "timeout", STATEMENT_TIMEOUT)
    monkeypatch.setattr(listener, "PROBE_INTERVAL", 0.5)
    metadata = MetaData()
    rig = Rig(far_engine, make_outbox_table(metadata), make_dlq_table(metadata))
    yield rig
    await rig.close()


async def done(claim: Claim) -> Outcome:
    return DONE


async def test_nothing_is_lost_and_leases_are_respected_through_cuts_and_silence(
    scene: Scene, business: Business, proxy: Proxy, rig: Rig
) -> None:
    handled: set[int] = set()
    heard: set[UUID] = set()

    async def handle(claim: Claim) -> Outcome:
        handled.add(claim.id)
        heard.add(claim.acquired_token)
        return DONE

    await rig.work(handle, PLAIN, **OPTIONS)
    habits = [Habit(PLAIN, pause=0.01), Habit(PLAIN, keys=4, pause=0.01)]
    load = [asyncio.create_task(business.publish_for(habit, 9.0, name=number)) for number, habit in enumerate(habits)]
    cuts = 0
    for cuts_off in (False, True):
        for way in (Way.DEAF, Way.OPEN, Way.BLACK_HOLE, Way.OPEN):
            proxy.way = way
            cuts += proxy.cut() if cuts_off else 0
            await asyncio.sleep(0.5 if way is Way.OPEN else 1.2 * STATEMENT_TIMEOUT)
    await asyncio.gather(*load)
    await eventually(lambda: scene.left() == 0, message="everything is handled and settled")
    assert len(handled) == scene.ask("select count(*) from orders")[0][0]
    # A claim whose answer was lost is claimed again by the one who made it, at once: nobody holds that lease.
    account = scene.account(heard=heard)
    print(f"{cuts} connections cut, {proxy.swallowed} bytes swallowed, {len(handled)} messages")
    assert (cuts > 0, proxy.swallowed > 0, account.stolen, account.abreast) == (True, True, (), ())


async def test_settle_whose_answer_was_lost_is_told_as_handled_once(
    scene: Scene, business: Business, proxy: Proxy, rig: Rig
) -> None:
    async def handle(claim: Claim) -> Outcome:
        if rig.witness.of(events.Handled):
            proxy.way = Way.DEAF
        return DONE

    # Nothing but the settle uses its connection, and it has been prepared by a first message.
    worker = await rig.work(handle, PLAIN, client=rig.another_client(listen=False, watch=False), **OPTIONS)
    await business.publish(ONE, transactions=1)
    await rig.witness.wait(events.Handled)
    await business.publish(ONE, transactions=1, name=1)
    await eventually(lambda: proxy.way is Way.DEAF and scene.left() == 0, message="the settle reaches the server")
    told_before = len(rig.witness.of(events.Handled))
    proxy.way = Way.OPEN
    await rig.witness.wait(events.Handled, count=2)
    await worker.stop()
    told = [len(rig.witness.of(kind)) for kind in (events.Started, events.Handled, events.LeaseWasLost)]
    assert (told_before, told) == (1, [2, 2, 0])


async def test_listener_that_died_silently_is_replaced(proxy: Proxy, rig: Rig) -> None:
    await rig.work(done, PLAIN, **OPTIONS)
    await rig.witness.wait(events.ListenerReady)
    proxy.way = Way.BLACK_HOLE
    await rig.witness.wait(events.ListenerLost)
    proxy.way = Way.OPEN
    await rig.witness.wait(events.ListenerReady, count=2)


async def test_worker_stops_in_time_when_the_server_is_out_of_reach(proxy: Proxy, rig: Rig) -> None:
    worker = await rig.work(done, PLAIN, **OPTIONS)
    proxy.way = Way.BLACK_HOLE
    loop = asyncio.get_running_loop()
    began = loop.time()
    await worker.stop(timeout=1.0)
    # On a machine that is very busy; a connection that nobody gives up takes a minute.
    assert loop.time() - began < 20.0
