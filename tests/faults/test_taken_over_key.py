"""A worker is cut off for longer than its lease, and another one takes over its key, though not all of its run.

Whoever comes back must not go on with the rest of the run: at most one message of a key is in flight, and the later one
must not be finished while the earlier one is at work again.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_outbox_table
from tests.faults.child import PLAIN
from tests.faults.proxy import Proxy
from tests.faults.scene import Scene
from tests.servers.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.faults

HELD = "select id, acquired_token is not null, acquired_at < now() - interval '2 seconds' from outbox order by id"


class Hand:
    """A worker of its own client, whose handlers wait until they may end."""

    def __init__(self, engine: AsyncEngine, table: Table, scene: Scene, batch: int) -> None:
        self.begun: list[int] = []
        self.may_end = asyncio.Event()
        self.lost: list[events.LeaseWasLost] = []
        client = OutboxClient(engine, table, dlq_table=None)
        client.events.subscribe(self.lost.append, events.LeaseWasLost)
        self.worker = Worker(
            engine,
            table,
            PLAIN,
            self.handle,
            client=client,
            lease_ttl_seconds=scene.lease_seconds,
            min_fetch_interval=0.2,
            fetch_batch_size=batch,
        )

    async def handle(self, claim: Claim) -> Outcome:
        self.begun.append(int(claim.payload))
        await self.may_end.wait()
        return DONE


@pytest.fixture
async def far(database_url: URL, proxy: Proxy) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(database_url.set(host="127.0.0.1", port=proxy.port))
    yield engine
    await engine.dispose()


@pytest.fixture
async def hands(scene: Scene, engine: AsyncEngine, far: AsyncEngine) -> tuple[Hand, Hand]:
    """One at the far end that has claimed both messages of the key and begun with the first, and its heir."""
    table = make_outbox_table(MetaData())
    first, heir = Hand(far, table, scene, batch=10), Hand(engine, table, scene, batch=1)
    # A worker whose handlers are quick takes more of a key than it has executors.
    first.may_end.set()
    await first.worker.start()
    async with engine.begin() as connection:
        await publish(connection, table, *(Envelope(queue=PLAIN, body=b"0") for _ in range(20)))
    await eventually(lambda: scene.left() == 0)
    first.may_end.clear()
    first.begun.clear()
    async with engine.begin() as connection:
        await publish(connection, table, *(Envelope(queue=PLAIN, body=b"%d" % number, key="k") for number in (1, 2)))
    await eventually(lambda: first.begun == [1])
    assert [row[1] for row in scene.ask(HELD)] == [True, True]
    return first, heir


async def take_over(scene: Scene, heir: Hand) -> None:
    """Let the heir begin with the first message when both leases have run out."""
    await eventually(lambda: all(row[2] for row in scene.ask(HELD)), message="both leases have run out")
    await heir.worker.start()
    await eventually(lambda: heir.begun == [1])


async def finish(scene: Scene, *hands: Hand) -> list[int]:
    """Let them end; gives what both have begun."""
    for hand in hands:
        hand.may_end.set()
    await eventually(lambda: scene.left() == 0)
    for hand in hands:
        await hand.worker.stop()
    return sorted(number for hand in hands for number in hand.begun)


async def test_rest_of_a_run_is_not_begun_by_who_lost_its_first(
    scene: Scene, proxy: Proxy, hands: tuple[Hand, Hand]
) -> None:
    first, heir = hands
    target, proxy.target = proxy.target, free_port()
    proxy.cut()
    await take_over(scene, heir)
    proxy.target = target
    await eventually(lambda: first.lost, message="the first worker knows that its first message is not its own")
    first.may_end.set()
    (_, second) = [row[0] for row in scene.ask(HELD)]
    free = f"select 1 from outbox where id = {second} and acquired_token is null"
    await eventually(lambda: first.begun == [1, 2] or scene.ask(free), message="the second message is free or begun")
    begun = list(first.begun)
    # Who takes the second message is open: the first worker claims again too.
    assert (begun, await finish(scene, first, heir)) == ([1], [1, 1, 2])


async def test_rest_of_a_run_that_runs_already_is_not_finished_by_who_lost_its_first(
    scene: Scene, proxy: Proxy, hands: tuple[Hand, Hand]
) -> None:
    first, heir = hands
    target, proxy.target = proxy.target, free_port()
    proxy.cut()
    # It is done with the first message, cannot write so, and goes on to the second.
    first.may_end.set()
    await eventually(lambda: first.begun == [1, 2])
    await take_over(scene, heir)
    proxy.target = target
    await eventually(lambda: first.lost, message="the first worker has lost its first message")
    left = len(scene.ask(HELD))
    assert (left, await finish(scene, first, heir)) == (2, [1, 1, 2, 2])
