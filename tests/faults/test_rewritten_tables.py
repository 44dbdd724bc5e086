"""Tables that are rewritten, reindexed or carried elsewhere while workers run: nothing is lost, and order holds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, text
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


async def _rewrite(engine: AsyncEngine, table: str) -> None:
    """Everything that gives the rows of a table new places, or its indexes new files."""
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in (
            f"VACUUM FULL {table}",
            f"REINDEX TABLE CONCURRENTLY {table}",
            f"CLUSTER {table} USING {table}_pkey",
            f"VACUUM (ANALYZE, FREEZE) {table}",
        ):
            await connection.execute(text(statement))


async def published_meanwhile(engine: AsyncEngine, tables: list[str], publish: Callable[..., Any]) -> list[int]:
    """Rewrite the tables again and again, and publish numbers all the time, each in a transaction; gives these."""
    rewritten = asyncio.Event()
    numbers: list[int] = []

    async def produce() -> None:
        while not rewritten.is_set():
            async with AsyncSession(engine) as session, session.begin():
                await publish(session, len(numbers) + 1)
            numbers.append(len(numbers) + 1)

    producing = asyncio.create_task(produce())
    try:
        for _ in range(ROUNDS):
            for table in tables:
                await _rewrite(engine, table)
    finally:
        rewritten.set()
        await producing
    return numbers


async def test_a_queue_goes_on(driver_rig: Rig) -> None:
    rig = driver_rig
    seen: dict[str | None, list[int]] = {}

    async def handle(claim: Claim) -> Outcome:
        seen.setdefault(claim.key, []).append(int(claim.payload))
        return DONE

    async def produce(session: AsyncSession, number: int) -> None:
        keys = [None, *(f"k{key}" for key in range(KEYS))]
        messages = [Envelope(queue="orders", body=b"%d" % number, key=key) for key in keys]
        await publish(session, rig.table, *messages, wakeups=rig.client.wakeups)

    await rig.work(handle, max_workers=8, lease_ttl_seconds=30.0, **POLLING)
    published = await published_meanwhile(rig.engine, ["outbox"], produce)
    await eventually(rig.is_empty)
    keyless = seen.pop(None)
    assert seen == {f"k{key}": published for key in range(KEYS)}
    assert sorted(keyless) == published
    assert rig.witness.of(events.LeaseWasLost, events.MessageSetApart) == []


async def test_a_log_goes_on(driver_engine: AsyncEngine) -> None:
    seen: dict[str, list[int]] = {}

    async def handle(message: OutboxMessage) -> None:
        seen.setdefault(message.uri, []).append(message.payload)

    async with opened(driver_engine) as outbox:
        stop = asyncio.Event()

        async def produce(session: AsyncSession, number: int) -> None:
            await outbox.publish(session, *[OutboxMessage(f"t/{key}", number) for key in range(KEYS)])

        reading = asyncio.create_task(outbox.run(handle, "g", poll_interval=0.05, stop_event=stop))
        tables = [table.name for table in outbox.tables.all]
        published = await published_meanwhile(driver_engine, tables, produce)
        await eventually(lambda: sum(map(len, seen.values())) >= KEYS * len(published))
        stop.set()
        await reading
    assert seen == {f"t/{key}": published for key in range(KEYS)}


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
