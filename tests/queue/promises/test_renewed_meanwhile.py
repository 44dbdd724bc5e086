"""A lease that is renewed at the very moment at which its message is settled is not lost."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from faststream_outbox import events
from faststream_outbox.queue import DONE, RELEASE, SETTLED, Claim, Dead, NoRetry, Outcome, Retry
from tests.queue.rig import Rig
from tests.waiting import eventually

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def renew(rig: Rig, connection: AsyncConnection) -> None:
    """Move the row to another place, as a renewal does, without committing yet."""
    await connection.execute(text(f"update {rig.table.name} set acquired_at = clock_timestamp()"))


async def commit_when_awaited(rig: Rig, connection: AsyncConnection) -> None:
    await eventually(lambda: rig.one(WAITING), timeout=20, message="somebody waits")
    await connection.commit()


async def test_by_settle_within(driver_rig: Rig) -> None:
    rig = driver_rig

    async def handle(claim: Claim) -> Outcome:
        async with rig.engine.connect() as connection, AsyncSession(rig.engine) as session, session.begin():
            await renew(rig, connection)
            async with asyncio.TaskGroup() as together:
                together.create_task(commit_when_awaited(rig, connection))
                await rig.client.settle_within(session, claim)
        return SETTLED

    await rig.ended(events.Handled, handle, "a", retry_strategy=NoRetry())
    assert (await rig.is_empty(), rig.witness.of(events.LeaseWasLost)) == (True, [])


@pytest.mark.parametrize(
    ("outcome", "event"),
    [(DONE, events.Handled), (Retry(3600.0), events.Retried), (Dead(), events.Died), (RELEASE, events.Released)],
    ids=["done", "retry", "dead", "release"],
)
async def test_by_the_settler(driver_rig: Rig, outcome: Outcome, event: type[events.MessageEvent]) -> None:
    rig = driver_rig
    renewed = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        if claim.deliveries_count == 1 and not renewed.is_set():
            await renew(rig, connection)
            renewed.set()
            return outcome
        return DONE

    async with rig.engine.connect() as connection:
        await rig.work(handle)
        await rig.put("a")
        await renewed.wait()
        await commit_when_awaited(rig, connection)
        await rig.witness.wait(event)
    assert rig.witness.of(events.LeaseWasLost) == []
