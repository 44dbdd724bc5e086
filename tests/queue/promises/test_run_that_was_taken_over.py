"""A run of a key whose lease has run out: who comes late goes on with no part of it.

A run may be longer than what the heir takes of it. The rest still has the first one's token, and nobody has asked for
it: but a message in front of it is handled elsewhere.
"""

import asyncio
from collections.abc import Sequence

from faststream_outbox import events
from faststream_outbox._internal.outcomes.outcome import Outcome
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.attempt import attempt_batch
from faststream_outbox.queue import DONE, RELEASE, Claim
from tests.queue.claims import claim_of
from tests.queue.rig import Gate, Rig
from tests.waiting import eventually

LEASE = {"lease_ttl_seconds": 3.0}


async def test_the_rest_of_a_run_that_was_taken_over_is_not_begun(rig: Rig) -> None:
    """The first worker stands still for longer than its lease; another one takes the first message of its run."""
    began: list[tuple[str, bytes]] = []
    let_go, heir_has_one = asyncio.Event(), asyncio.Event()

    async def slow(claim: Claim) -> Outcome:
        began.append(("slow", claim.payload))
        await let_go.wait()
        return DONE

    async def heir(claim: Claim) -> Outcome:
        began.append(("heir", claim.payload))
        heir_has_one.set()
        await asyncio.Event().wait()
        return DONE

    first = await rig.work(slow, max_workers=3, **LEASE)
    await rig.put("1", "2", "3", key="k")
    await rig.witness.wait(events.Started)
    # It stands still: the time of its lease goes by, and it does not renew.
    for claim in first.unsettled:
        claim.renewed_at, claim.deadline = float("inf"), float("-inf")
    await rig.sql("update {t} set acquired_at = acquired_at - interval '1 hour'")
    await rig.work(heir, client=rig.another_client(), fetch_batch_size=1, **LEASE)
    await heir_has_one.wait()
    # It goes on: its leases are renewed, and then its handler ends.
    for claim in first.unsettled:
        claim.renewed_at = float("-inf")
    await rig.witness.wait(events.LeaseWasLost)
    let_go.set()
    await eventually(lambda: not first.unsettled, message="the first worker is done with its run")
    assert began == [("slow", b"1"), ("heir", b"1")]


async def test_a_batch_leaves_out_what_stands_behind_a_message_that_was_taken_over(rig: Rig) -> None:
    seen: list[int] = []

    async def handle(claims: Sequence[Claim]) -> list[Outcome]:
        seen.extend(claim.id for claim in claims)
        return [DONE] * len(claims)

    worker = rig.worker(handle, batch=True)
    batch = [claim_of(claimed_at=clock.now()) for _ in range(3)]
    for number, (claim, key) in enumerate(zip(batch, ("k", "k", "other"), strict=True)):
        claim.id, claim.key, claim.worker = number, key, worker
    batch[0].lose(cancel=False)
    task = asyncio.current_task()
    assert task is not None
    assert await attempt_batch(worker, batch, task) == [None, RELEASE, DONE]
    assert seen == [2]


async def test_message_without_a_key_keeps_a_lease_that_nobody_took(rig: Rig) -> None:
    gate = Gate()
    await rig.work(gate, **LEASE)
    await rig.put("alone")
    await eventually(rig.leased)
    await rig.sql("update {t} set acquired_at = acquired_at - interval '1 hour'")

    renewed = "select acquired_at > now() - interval '1 minute' from {t}"
    await eventually(lambda: rig.one(renewed), message="its lease is renewed")
    gate.open.set()
    await rig.witness.wait(events.Handled)
    assert rig.witness.of(events.LeaseWasLost) == []
