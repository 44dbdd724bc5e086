"""A handler may keep the transaction open in which it settles, and go on after it: its message stays its own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox.queue import DONE, SETTLED, Claim, Outcome
from tests.queue.rig import POLLING, Rig

pytestmark = pytest.mark.faults

LEASE = 1.5
"""Renewed every half second."""


class Slow:
    """A handler that settles within its own transaction, and takes its time before the commit and after it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.may_commit, self.may_return = asyncio.Event(), asyncio.Event()
        self.settled_within, self.committed = asyncio.Event(), asyncio.Event()

    async def __call__(self, claim: Claim) -> Outcome:
        async with AsyncSession(self._rig.engine) as session, session.begin():
            await self._rig.client.settle_within(session, claim)
            self.settled_within.set()
            await self.may_commit.wait()
        self.committed.set()
        await self.may_return.wait()
        return SETTLED


@pytest.fixture
async def slow(rig: Rig) -> AsyncIterator[Slow]:
    slow = Slow(rig)
    await rig.work(slow, on_lease_lost="cancel", lease_ttl_seconds=LEASE)
    await rig.put("a")
    await slow.settled_within.wait()
    yield slow
    slow.may_commit.set()
    slow.may_return.set()


async def test_handler_that_goes_on_after_its_commit_has_not_lost_its_lease(rig: Rig, slow: Slow) -> None:
    slow.may_commit.set()
    await slow.committed.wait()
    await asyncio.sleep(1.5 * LEASE)
    slow.may_return.set()
    await rig.witness.wait(events.Handled)
    assert rig.witness.of(events.LeaseWasLost) == []


async def test_nobody_else_gets_a_message_that_is_being_settled(rig: Rig, slow: Slow) -> None:
    taken: list[Claim] = []

    async def take(claim: Claim) -> Outcome:
        taken.append(claim)
        return DONE

    await rig.work(take, client=rig.another_client(), lease_ttl_seconds=LEASE, **POLLING)
    # Longer than a lease: several renewals meet the locked row.
    await asyncio.sleep(1.5 * LEASE)
    slow.may_commit.set()
    slow.may_return.set()
    await rig.witness.wait(events.Handled)
    assert (taken, rig.witness.of(events.LeaseWasLost), await rig.is_empty()) == ([], [], True)
