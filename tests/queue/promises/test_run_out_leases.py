"""A lease of a keyed message that has run out does not live again: another worker may have the key by then."""

import asyncio
from uuid import uuid4

from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Outcome
from tests.queue.rig import Rig
from tests.waiting import eventually

LEASE = 2.0

# As after an outage that was longer than the leases: they have run out, and the first message went to another worker.
_RUN_OUT = "update {t} set acquired_at = now() - make_interval(secs => :old)"
_TAKEN = "update {t} set acquired_at = now(), acquired_token = cast(:token as uuid) where payload = 'first'"


async def test_next_of_a_run_does_not_begin_while_another_worker_has_the_one_before_it(rig: Rig) -> None:
    began: list[bytes] = []
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        began.append(claim.payload)
        if claim.payload != b"quick":
            await may_end.wait()
        return DONE

    worker = await rig.work(handle, lease_ttl_seconds=LEASE)
    # Runs are short until the handler is known to be quick.
    await rig.put("quick", key="k")
    await rig.witness.wait(events.Handled)
    first, _ = await rig.put("first", "second", key="k")
    await eventually(lambda: began[1:])
    assert await rig.leased() == 2
    async with rig.engine.begin() as connection:
        await connection.execute(text(_RUN_OUT.replace("{t}", rig.table.name)), {"old": 2 * LEASE})
        await connection.execute(text(_TAKEN.replace("{t}", rig.table.name)), {"token": uuid4()})
    await rig.witness.wait(events.LeaseWasLost, id=first)
    may_end.set()
    await eventually(lambda: first not in {claim.id for claim in worker.unsettled})
    assert began == [b"quick", b"first"]


async def test_message_without_a_key_keeps_a_lease_that_nobody_took(rig: Rig) -> None:
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        await may_end.wait()
        return DONE

    await rig.work(handle, lease_ttl_seconds=LEASE)
    await rig.put("alone")
    await eventually(rig.leased)
    await rig.sql(_RUN_OUT, old=2 * LEASE)
    renewed = "select acquired_at > now() - make_interval(secs => :lease) from {t}"

    async def is_renewed() -> bool:
        return bool(await rig.one(renewed, lease=LEASE))

    await eventually(is_renewed)
    may_end.set()
    await rig.witness.wait(events.Handled)
    assert rig.witness.of(events.LeaseWasLost) == []
