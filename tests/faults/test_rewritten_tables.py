"""Tables that are rewritten, reindexed or carried elsewhere while workers run: nothing is lost, and order holds."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.log import OutboxMessage
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Dead, Outcome, Selection
from faststream_outbox.schema import make_dlq_table, make_outbox_table, validate_schema
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.clusters import DATABASE, dump, restore, start
from tests.log.opened import opened
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually

pytestmark = pytest.mark.slow

KEYS = 5
ROUNDS = 3


async def _rewrite(engine: AsyncEngine, table: str, primary_key: str) -> None:
    """Everything that gives the rows of a table new places, or its indexes new files."""
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in (
            f"VACUUM FULL {table}",
            f"REINDEX TABLE CONCURRENTLY {table}",
            f"CLUSTER {table} USING {primary_key}",
            f"VACUUM (ANALYZE, FREEZE) {table}",
        ):
            await connection.execute(text(statement))


async def test_a_queue_goes_on(driver_engine: AsyncEngine, table: Table, dlq_table: Table) -> None:
    rig = Rig(driver_engine, table, dlq_table)
    seen: dict[str | None, list[int]] = {}
    published = 0

    async def handle(claim: Claim) -> Outcome:
        seen.setdefault(claim.key, []).append(int(claim.payload))
        return DONE

    async def produce() -> None:
        nonlocal published
        while not rewritten.is_set():
            async with AsyncSession(driver_engine) as session, session.begin():
                number = published = published + 1
                keys = [None, *(f"k{key}" for key in range(KEYS))]
                messages = [Envelope(queue="orders", body=b"%d" % number, key=key) for key in keys]
                await publish(session, rig.table, *messages, wakeups=rig.client.wakeups)

    rewritten = asyncio.Event()
    await rig.work(handle, max_workers=8, lease_ttl_seconds=30.0, **POLLING)
    producing = asyncio.create_task(produce())
    try:
        for _ in range(ROUNDS):
            await _rewrite(driver_engine, "outbox", "outbox_pkey")
    finally:
        rewritten.set()
        await producing
    await eventually(rig.is_empty)
    await rig.close()
    everything = [*range(1, published + 1)]
    assert {key: numbers for key, numbers in seen.items() if key is not None} == {
        f"k{key}": everything for key in range(KEYS)
    }
    assert sorted(seen[None]) == everything
    assert rig.witness.of(events.LeaseWasLost, events.MessageSetApart) == []


async def test_a_log_goes_on(driver_engine: AsyncEngine) -> None:
    seen: dict[str, list[int]] = {}
    published = 0

    async def handle(message: OutboxMessage) -> None:
        seen.setdefault(message.uri, []).append(message.payload)

    async with opened(driver_engine) as outbox:
        stop, rewritten = asyncio.Event(), asyncio.Event()

        async def produce() -> None:
            nonlocal published
            while not rewritten.is_set():
                async with AsyncSession(driver_engine) as session, session.begin():
                    number = published = published + 1
                    messages = [OutboxMessage(f"t/{key}", number) for key in range(KEYS)]
                    await outbox.publish(session, *messages)

        reading = asyncio.create_task(outbox.run(handle, "g", poll_interval=0.05, stop_event=stop))
        producing = asyncio.create_task(produce())
        try:
            for _ in range(ROUNDS):
                for table in outbox.tables.all:
                    await _rewrite(driver_engine, table.name, f"{table.name}_pkey")
        finally:
            rewritten.set()
            await producing
        await eventually(lambda: sum(map(len, seen.values())) >= KEYS * published)
        stop.set()
        await reading
    assert seen == {f"t/{key}": [*range(1, published + 1)] for key in range(KEYS)}


@pytest.fixture
def clusters() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with start() as first, start() as second:
        yield first, second


@pytest.fixture
async def rigs(clusters: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[tuple[Rig, Rig]]:
    """The same tables in two clusters; those of the second one come with the dump."""
    metadata = MetaData()
    tables = make_outbox_table(metadata), make_dlq_table(metadata)
    engines = [create_async_engine(server.dsn(DATABASE)) for server in clusters]
    async with engines[0].begin() as connection:
        await connection.run_sync(metadata.create_all)
    rigs = Rig(engines[0], *tables), Rig(engines[1], *tables)
    yield rigs
    for rig, engine in zip(rigs, engines, strict=True):
        await rig.close()
        await engine.dispose()


async def test_a_queue_is_carried_into_another_cluster_where_workers_wait(
    clusters: tuple[PostgresServer, PostgresServer], rigs: tuple[Rig, Rig], tmp_path: Path
) -> None:
    old, new = rigs
    in_flight = asyncio.Event()
    seen: list[tuple[str | None, bytes]] = []

    async def hold(claim: Claim) -> Outcome:
        if claim.payload == b"dead":
            return Dead()
        in_flight.set()
        await asyncio.Event().wait()
        return DONE

    async def handle(claim: Claim) -> Outcome:
        seen.append((claim.key, claim.payload))
        return DONE

    await old.put("dead", queue="dying")
    await old.work(hold, ["dying"])
    await old.witness.wait(events.Died)
    bodies = [f"{number:02}" for number in range(20)]
    await old.put(*bodies, key="k")
    await old.put(*bodies)
    await old.put("timer", timer_id="t", due_in=1.0)
    await old.work(hold, lease_ttl_seconds=2.0)
    await in_flight.wait()
    dump(clusters[0], tmp_path / "dump.sql")
    # Workers of the new cluster are there before the tables are, and before their indexes.
    await new.work(handle, ["orders", "dying"], max_workers=4, lease_ttl_seconds=2.0, **POLLING)
    await asyncio.to_thread(restore, clusters[1], tmp_path / "dump.sql")
    await eventually(new.is_empty)
    await validate_schema(new.engine, new.table, new.dlq_table)
    assert [body for key, body in seen if key == "k"] == [body.encode() for body in bodies]
    assert sorted(body for key, body in seen if key is None) == [*(body.encode() for body in bodies), b"timer"]
    assert (await new.letters.replay(Selection(everything=True))).replayed == 1
    await new.put("after")
    await new.witness.wait(events.Handled, count=2 * len(bodies) + 3)
