"""Retries: when, how often, and what is counted."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, ConstantRetry, LinearRetry, Outcome, Release, Retry, Undecided
from tests.queue.rig import QUIET_SECONDS, Rig, Seen
from tests.waiting import eventually


class Failing(Seen):
    """A handler that raises so often and keeps when it ran and what it was told."""

    def __init__(self, failures: int) -> None:
        super().__init__(self._fail)
        self.failures = failures
        self.ran_at: list[float] = []

    def _fail(self, claim: Claim) -> Outcome:
        self.ran_at.append(asyncio.get_running_loop().time())
        if len(self.claims) <= self.failures:
            raise ValueError(f"failure {len(self.claims)}")
        return DONE

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.ran_at)]


class TestSchedule:
    @pytest.mark.slow
    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_no_attempt_comes_early(self, driver_rig: Rig, key: str | None) -> None:
        handle = Failing(3)
        strategy = LinearRetry(initial_delay_seconds=0.1, step_seconds=0.1)
        await driver_rig.ended(events.Handled, handle, "a", key=key, retry_strategy=strategy)
        assert all(gap >= least for gap, least in zip(handle.gaps, [0.1, 0.2, 0.3], strict=True)), handle.gaps

    async def test_the_handlers_own_delay_goes_before_the_strategys(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return DONE if claim.attempts_count else Retry(0.01)

        await rig.ended(events.Handled, handle, "a", retry_strategy=ConstantRetry(delay_seconds=3600))

    @pytest.mark.slow
    async def test_the_shorter_delay_comes_first(self, rig: Rig) -> None:
        delays = {b"a": 0.6, b"b": 0.2, b"c": 0.4}
        handle = Seen(lambda claim: DONE if claim.attempts_count else Retry(delays[claim.payload]))
        await rig.ended(events.Handled, handle, *"abc", max_workers=3)
        assert [claim.payload for claim in handle.claims if claim.attempts_count] == [b"b", b"c", b"a"]

    async def test_a_message_that_waits_for_its_retry_holds_up_nobody(self, rig: Rig) -> None:
        await rig.work(Seen(lambda claim: Retry(3600.0) if claim.payload == b"later" else DONE))
        await rig.put("later", "a", "b")
        await rig.witness.wait(events.Handled, count=2)

    async def test_retries_without_delay_do_not_get_lost_under_load(self, rig: Rig) -> None:
        """A retry may become visible after a claim that began later than its due time."""
        handle = Seen(lambda claim: DONE if claim.attempts_count >= 3 else Retry(0.0))
        await rig.ended(events.Handled, handle, *["x"] * 500, max_workers=8, fetch_batch_size=50)

    @pytest.mark.slow
    async def test_another_client_takes_over_when_the_one_that_scheduled_it_has_stopped(self, rig: Rig) -> None:
        fail = asyncio.Event()

        async def handle(claim: Claim) -> Outcome:
            await fail.wait()
            return Retry(1.0)

        first = await rig.work(handle)
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await rig.work(Failing(0), client=rig.another_client())
        await rig.witness.wait(events.ListenerReady, count=2)
        await asyncio.sleep(QUIET_SECONDS)
        fail.set()
        await rig.witness.wait(events.Retried)
        await first.stop()
        await rig.witness.wait(events.Handled)


class TestCounting:
    async def test_each_failure_is_an_attempt_and_a_delivery_with_its_time(self, driver_rig: Rig) -> None:
        handle = Failing(3)
        await driver_rig.ended(events.Handled, handle, "a", retry_strategy=ConstantRetry(delay_seconds=0.02))
        counts = [(claim.attempts_count, claim.deliveries_count) for claim in handle.claims]
        assert counts == [(0, 1), (1, 2), (2, 3), (3, 4)]
        fresh, *others = handle.claims
        assert (fresh.first_attempt_at, fresh.last_attempt_at) == (None, None)
        lasts = [claim.last_attempt_at or fresh.created_at for claim in others]
        assert fresh.created_at < lasts[0] < lasts[1] < lasts[2]
        assert {claim.first_attempt_at for claim in others} == {lasts[0]}

    async def test_the_row_is_due_after_the_delay_from_the_failure_which_is_told(self, rig: Rig) -> None:
        retried = await rig.ended(events.Retried, Failing(9), "a", retry_strategy=ConstantRetry(delay_seconds=3600))
        row = await rig.row()
        assert abs(row["next_attempt_at"] - row["last_attempt_at"] - timedelta(hours=1)) < timedelta(seconds=1)
        assert (row["acquired_token"], row["acquired_at"]) == (None, None)
        assert (retried.delay_seconds, str(retried.error)) == (3600.0, "failure 1")

    async def test_max_attempts_is_the_number_of_runs(self, rig: Rig) -> None:
        handle = Failing(99)
        await rig.ended(events.Died, handle, "a", retry_strategy=ConstantRetry(delay_seconds=0.01, max_attempts=3))
        (letter,) = await rig.dead()
        assert (len(handle.ran_at), letter["attempts_count"], letter["failure_reason"]) == (3, 3, "retry_terminal")


class TestSnooze:
    async def test_uses_up_no_attempt_and_no_delivery(self, driver_rig: Rig) -> None:
        handle = Seen(lambda claim: DONE if len(handle.claims) == 4 else Retry(0.01, counts=False))
        await driver_rig.ended(events.Handled, handle, "a", max_deliveries=1, crash_limit=1)
        assert [(claim.attempts_count, claim.deliveries_count) for claim in handle.claims] == [(0, 1)] * 4

    async def test_of_a_message_with_a_key_holds_the_key(self, rig: Rig) -> None:
        handle = Seen(lambda claim: Retry(0.3, counts=False) if len(handle.claims) == 1 else DONE)
        await rig.ended(events.Handled, handle, *"abc", key="customer", max_workers=3)
        assert handle.bodies == ["a", "a", "b", "c"]


class TestUndecided:
    @pytest.mark.parametrize(
        ("policy", "kind"),
        [("retry", events.Retried), ("release", events.Released), ("done", events.Handled), ("dead", events.Died)],
    )
    async def test_is_settled_as_the_policy_says(self, driver_rig: Rig, policy: str, kind: type[object]) -> None:
        handle = Seen(lambda claim: Undecided() if claim.deliveries_count == 1 else Retry(3600.0))
        options = {"on_undecided": policy, "retry_strategy": ConstantRetry(delay_seconds=3600)}
        await driver_rig.ended(kind, handle, "a", **options)

    @pytest.mark.parametrize(
        ("policy", "letter"),
        [("release", ("crash_loop", 0, 3, None)), ("dead", ("undecided", 1, 1, None))],
        ids=["released again and again", "dead at once"],
    )
    async def test_one_that_ends_says_why(self, rig: Rig, policy: str, letter: tuple[object, ...]) -> None:
        await rig.ended(events.Died, Seen(lambda claim: Undecided()), "a", on_undecided=policy, crash_limit=2)
        (dead,) = await rig.dead()
        names = ("failure_reason", "attempts_count", "deliveries_count", "error_type")
        assert tuple(dead[name] for name in names) == letter


class TestRelease:
    @pytest.mark.parametrize(("counts", "deliveries"), [(True, 2), (False, 1)])
    async def test_counts_as_a_delivery_if_it_says_so(self, driver_rig: Rig, counts: bool, deliveries: int) -> None:
        handle = Seen(lambda claim: DONE if driver_rig.witness.of(events.Released) else Release(counts=counts))
        handled = await driver_rig.ended(events.Handled, handle, "a")
        assert handled.deliveries_count == deliveries

    async def test_leaves_the_due_time_as_it_was(self, rig: Rig) -> None:
        await rig.put("a")
        due = (await rig.row())["next_attempt_at"]
        worker = await rig.work(Seen(lambda claim: Release()))
        await rig.witness.wait(events.Released)
        await worker.stop()
        await eventually(lambda: not worker.running)
        assert (await rig.row())["next_attempt_at"] == due


SLOW_RETRY = """
create function slow_retry() returns trigger language plpgsql as
$$ begin perform pg_advisory_xact_lock(72); return new; end $$
"""
ON_RETRY = """
create trigger slow_retry before update on outbox for each row
when (new.attempts_count > old.attempts_count) execute function slow_retry()
"""
IS_OVERDUE = """
select count(*) > 0 from pg_stat_activity
where wait_event = 'advisory' and datname = current_database() and xact_start < clock_timestamp() - interval '50 ms'
"""


async def test_a_retry_that_is_due_before_it_is_committed_comes_without_polling(rig: Rig) -> None:
    """A claim in between goes past its time without seeing it."""
    handle = Seen(lambda claim: Retry(0.01) if claim.payload == b"slow" and claim.attempts_count == 0 else DONE)

    await rig.sql(SLOW_RETRY)
    await rig.sql(ON_RETRY)
    async with rig.engine.connect() as gate:
        await gate.execute(text("select pg_advisory_lock(72)"))
        await gate.commit()
        try:
            await rig.work(handle, max_workers=2)
            await rig.witness.wait(events.ListenerReady)
            (first,) = await rig.put("slow")
            await eventually(lambda: rig.one(IS_OVERDUE), message="it is overdue")
            await rig.put("quick")
            await eventually(lambda: "quick" in handle.bodies)
        finally:
            await gate.execute(text("select pg_advisory_unlock(72)"))
            await gate.commit()
        await rig.witness.wait(events.Handled, id=first)
    await rig.sql("drop function slow_retry cascade")
    assert handle.bodies == ["slow", "quick", "slow"]
