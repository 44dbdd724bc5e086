"""A handler that takes longer than it may is cancelled, and that is a failed attempt."""

import asyncio
from collections.abc import Sequence

import pytest

from faststream_outbox import events
from faststream_outbox.queue import DONE, SETTLED, Claim, Done, NoRetry, Outcome
from tests.queue.rig import Gate, Rig


async def test_a_hanging_handler_fails_and_the_next_message_is_handled(rig: Rig) -> None:
    await rig.work(Gate(), handler_timeout=0.05, retry_strategy=NoRetry())
    await rig.put("hangs", "quick")
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled)
    (letter,) = await rig.dead()
    assert (died.reason, letter["error_type"]) == ("retry_terminal", "TimeoutError")
    assert letter["error_message"] == "The handler did not end within 0.05 s: handler_timeout."
    assert "self.open.wait()" in letter["traceback"]


async def test_a_hanging_batch_fails_whole(rig: Rig) -> None:
    async def handle(claims: Sequence[Claim]) -> list[Done]:
        await asyncio.Event().wait()
        return [DONE] * len(claims)

    await rig.put("a", "b")
    await rig.work(handle, batch=True, handler_timeout=0.05, retry_strategy=NoRetry())
    await rig.witness.wait(events.Died, count=2)
    assert {letter["error_type"] for letter in await rig.dead()} == {"TimeoutError"}


async def test_what_the_handler_had_decided_counts(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        claim.decide(DONE)
        await asyncio.Event().wait()
        return DONE

    await rig.ended(events.Handled, handle, "a", handler_timeout=0.05)


@pytest.mark.slow
async def test_one_whose_transaction_has_committed_is_not_tried_again(rig: Rig) -> None:
    async def handle(claim: Claim) -> Outcome:
        async with rig.engine.begin() as connection:
            await rig.client.settle_within(connection, claim)
        claim.decide(SETTLED)
        await asyncio.Event().wait()
        return SETTLED

    await rig.ended(events.Handled, handle, "a", handler_timeout=5.0)
    assert rig.witness.of(events.LeaseWasLost, events.Retried) == []


async def test_a_timeout_of_the_handlers_own_is_its_own(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        raise TimeoutError("the other server")

    died = await rig.ended(events.Died, handle, "a", handler_timeout=60.0, retry_strategy=NoRetry())
    assert str(died.error) == "the other server"
