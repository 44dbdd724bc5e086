"""PostgreSQL dies at once and comes back; workers recover by themselves, and finished work is not done again."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Outcome
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer
from tests.queue.rig import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.faults

WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query ilike 'delete from outbox%'"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def rig(request: pytest.FixtureRequest, private_server: PostgresServer) -> AsyncIterator[Rig]:
    """The outbox in a server of its own."""
    engine = create_async_engine(private_server.dsn(driver=request.param))
    metadata = MetaData()
    rig = Rig(engine, make_outbox_table(metadata), make_dlq_table(metadata))
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield rig
    await rig.close()
    await engine.dispose()


async def test_settle_that_the_crash_interrupted_is_written_without_a_second_run(
    private_server: PostgresServer, rig: Rig
) -> None:
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        await may_end.wait()
        return DONE

    async def settle_waits() -> bool:
        return bool(await rig.one(WAITS))

    await rig.work(handle)
    await rig.put("1")
    await rig.witness.wait(events.Started)
    async with rig.engine.connect() as holder:
        await holder.execute(text("select from outbox for update"))
        may_end.set()
        await eventually(settle_waits)
        await asyncio.to_thread(private_server.crash)
        await holder.invalidate()
    # What the pool still has died with the server.
    await rig.engine.dispose()
    await asyncio.to_thread(private_server.restart)
    await rig.witness.wait(events.Handled)
    assert (len(rig.witness.of(events.Started)), await rig.is_empty()) == (1, True)
