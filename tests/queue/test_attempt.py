"""A message that was claimed too often is not started again, and what cancels one says what becomes of it."""

import asyncio
from typing import Any, cast

import pytest

from faststream_outbox._internal.outcomes.outcome import STOPPED, FinalOutcome
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.attempt import attempt, overdelivered
from faststream_outbox.events import Events
from faststream_outbox.queue import DONE, Claim, Dead, Outcome, Retry
from tests.cases import each
from tests.queue.claims import claim_of


@each(
    ("what", "deliveries", "attempts", "options", "expected"),
    [
        ("max_deliveries does not exist by default", 10_000, 9_999, {}, None),
        ("it allows as many deliveries as it says", 3, 2, {"max_deliveries": 3}, None),
        ("it ends the message on the claim after that", 4, 3, {"max_deliveries": 3}, Dead("max_deliveries")),
        ("it counts deliveries without an outcome too", 4, 0, {"max_deliveries": 3}, Dead("max_deliveries")),
        ("the crash limit is a hundred by default", 100, 0, {}, None),
        ("and ends the message after that", 101, 0, {}, Dead("crash_loop")),
        ("it allows as many deliveries without an outcome", 3, 0, {"crash_limit": 3}, None),
        ("it ends the message after that", 4, 0, {"crash_limit": 3}, Dead("crash_loop")),
        ("it does not count attempts with an outcome", 500, 499, {"crash_limit": 3}, None),
        ("it comes after max_deliveries", 9, 0, {"crash_limit": 3, "max_deliveries": 3}, Dead("max_deliveries")),
    ],
)
def test_a_message_is_given_up_by_its_deliveries(
    what: str, deliveries: int, attempts: int, options: dict[str, int], expected: Dead | None
) -> None:
    claim = claim_of(deliveries=deliveries, attempts=attempts, **options)
    assert overdelivered(claim, claim.worker.options) == expected


class Run:
    """One attempt at a message, by a task of its own, with a handler that hangs unless it says otherwise."""

    def __init__(self) -> None:
        self.claim = claim_of(claimed_at=clock.now())
        self.began = asyncio.Event()
        self.error: BaseException | None = None
        self.worker = cast("Any", self.claim.worker)
        self.worker.handle = self.handle
        self.worker.name, self.worker.events = "orders", Events()
        self.worker.is_stopping = self.worker.is_cancelled = False
        self.worker.finished = lambda seconds, messages: None
        self.worker.employs = lambda task: True

    async def handle(self, _: object) -> Outcome:
        self.began.set()
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        return DONE

    async def attempt(self) -> FinalOutcome | None:
        task = asyncio.current_task()
        assert task is not None
        return await attempt(self.worker, self.claim, task)

    async def cancel(self) -> asyncio.Task[FinalOutcome | None]:
        """The attempt, after it was cancelled."""
        task = asyncio.ensure_future(self.attempt())
        await self.began.wait()
        task.cancel()
        await asyncio.wait([task])
        return task


@pytest.fixture
def run() -> Run:
    return Run()


class TestCancelled:
    async def test_by_a_stop_it_is_given_back(self, run: Run) -> None:
        run.worker.is_stopping = True
        assert (await run.cancel()).result() == STOPPED

    async def test_by_the_end_of_the_loop_it_has_no_outcome(self, run: Run) -> None:
        run.worker.is_cancelled = True
        assert (await run.cancel()).cancelled()

    async def test_by_the_loss_of_its_lease_it_is_given_back(self, run: Run) -> None:
        run.worker.handle = self.losing(run)
        assert await run.attempt() == STOPPED

    def losing(self, run: Run) -> Any:
        async def handle(claim: Claim) -> Outcome:
            claim.lose(cancel=True)
            return await run.handle(claim)

        return handle

    async def test_by_itself_it_has_failed(self, run: Run) -> None:
        run.error = asyncio.CancelledError()
        outcome = await run.attempt()
        assert isinstance(outcome, Retry)
        assert outcome.error is run.error

    async def test_by_itself_it_cancels_nothing_that_comes_after(self, run: Run) -> None:
        run.worker.handle = self.losing(run)
        await run.attempt()
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    async def test_its_task_is_no_longer_known(self, run: Run) -> None:
        run.worker.is_cancelled = True
        await run.cancel()
        assert run.claim.task is None
