"""Retries: when, how often, and what is counted."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox.queue import (
    DONE,
    Claim,
    ConstantRetry,
    Done,
    LinearRetry,
    Outcome,
    Release,
    Retry,
    RetryStrategyProto,
    Undecided,
)
from tests.queue.rig import QUIET_SECONDS, Rig
from tests.waiting import eventually


class Failing:
    """A handler that raises so often and keeps when it ran and what it was told."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.ran_at: list[float] = []
        self.claims: list[Claim] = []

    async def __call__(self, claim: Claim) -> Done:
        self.ran_at.append(asyncio.get_running_loop().time())
        self.claims.append(claim)
        if len(self.ran_at) <= self.failures:
            raise ValueError(f"failure {len(self.ran_at)}")
        return DONE

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.ran_at)]


class TestSchedule:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("strategy", "least"),
        [
            (ConstantRetry(delay_seconds=0.2), [0.2, 0.2, 0.2]),
            (LinearRetry(initial_delay_seconds=0.1, step_seconds=0.1), [0.1, 0.2, 0.3]),
        ],
        ids=["constant", "linear"],
    )
    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_no_attempt_comes_early(
        self, driver_rig: Rig, strategy: RetryStrategyProto, least: list[float], key: str | None
    ) -> None:
        handle = Failing(3)
        await driver_rig.work(handle, retry_strategy=strategy)
        await driver_rig.put("a", key=key)
        await driver_rig.witness.wait(events.Handled)
        assert all(gap >= expected for gap, expected in zip(handle.gaps, least, strict=True)), handle.gaps

    async def test_the_handlers_own_delay_goes_before_the_strategys(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return DONE if claim.attempts_count else Retry(0.01)

        await rig.work(handle, retry_strategy=ConstantRetry(delay_seconds=3600))
        await rig.put("a")
        await rig.witness.wait(events.Handled)

    @pytest.mark.slow
    async def test_the_shorter_delay_comes_first(self, rig: Rig) -> None:
        seen: list[bytes] = []

        async def handle(claim: Claim) -> Outcome:
            if claim.attempts_count:
                seen.append(claim.payload)
                return DONE
            return Retry({b"a": 0.6, b"b": 0.2, b"c": 0.4}[claim.payload])

        await rig.work(handle, max_workers=3)
        await rig.put(*"abc")
        await rig.witness.wait(events.Handled, count=3)
        assert seen == [b"b", b"c", b"a"]

    async def test_a_message_that_waits_for_its_retry_holds_up_nobody(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Retry(3600.0) if claim.payload == b"later" else DONE

        await rig.work(handle)
        await rig.put("later", "a", "b")
        await rig.witness.wait(events.Handled, count=2)

    async def test_retries_without_delay_do_not_get_lost_under_load(self, rig: Rig) -> None:
        """A retry may become visible after a claim that began later than its due time."""

        async def handle(claim: Claim) -> Outcome:
            return DONE if claim.attempts_count >= 3 else Retry(0.0)

        await rig.work(handle, max_workers=8, fetch_batch_size=50)
        await rig.put(*["x"] * 500)
        await rig.witness.wait(events.Handled, count=500)

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
    async def test_each_failure_is_an_attempt_and_a_delivery(self, driver_rig: Rig) -> None:
        handle = Failing(3)
        await driver_rig.work(handle, retry_strategy=ConstantRetry(delay_seconds=0.01))
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Handled)
        counts = [(claim.attempts_count, claim.deliveries_count) for claim in handle.claims]
        assert counts == [(0, 1), (1, 2), (2, 3), (3, 4)]

    async def test_the_times_of_the_first_and_the_last_attempt_are_kept(self, driver_rig: Rig) -> None:
        handle = Failing(3)
        await driver_rig.work(handle, retry_strategy=ConstantRetry(delay_seconds=0.05))
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Handled)
        fresh, *others = handle.claims
        assert (fresh.first_attempt_at, fresh.last_attempt_at) == (None, None)
        firsts = [claim.first_attempt_at for claim in others]
        lasts = [claim.last_attempt_at for claim in others]
        assert len(set(firsts)) == 1
        assert None not in lasts
        assert lasts == sorted(lasts, key=lambda moment: moment or fresh.created_at)
        assert len(set(lasts)) == 3

    async def test_the_row_is_due_after_the_delay_from_the_failure(self, rig: Rig) -> None:
        await rig.work(Failing(9), retry_strategy=ConstantRetry(delay_seconds=3600))
        await rig.put("a")
        await rig.witness.wait(events.Retried)
        row = await rig.row()
        assert abs(row["next_attempt_at"] - row["last_attempt_at"] - timedelta(hours=1)) < timedelta(seconds=1)
        assert (row["acquired_token"], row["acquired_at"]) == (None, None)

    async def test_a_retry_is_told_with_its_delay_and_error(self, rig: Rig) -> None:
        await rig.work(Failing(9), retry_strategy=ConstantRetry(delay_seconds=3600))
        await rig.put("a")
        retried = await rig.witness.wait(events.Retried)
        assert (retried.delay_seconds, str(retried.error)) == (3600.0, "failure 1")

    async def test_max_attempts_is_the_number_of_runs(self, rig: Rig) -> None:
        handle = Failing(99)
        await rig.work(handle, retry_strategy=ConstantRetry(delay_seconds=0.01, max_attempts=3))
        await rig.put("a")
        await rig.witness.wait(events.Died)
        (letter,) = await rig.dead()
        assert (len(handle.ran_at), letter["attempts_count"], letter["failure_reason"]) == (3, 3, "retry_terminal")


class TestSnooze:
    async def test_uses_up_no_attempt_and_no_delivery(self, driver_rig: Rig) -> None:
        counts: list[tuple[int, int]] = []

        async def handle(claim: Claim) -> Outcome:
            counts.append((claim.attempts_count, claim.deliveries_count))
            return DONE if len(counts) == 4 else Retry(0.01, counts=False)

        await driver_rig.work(handle, max_deliveries=1, crash_limit=1)
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Handled)
        assert counts == [(0, 1)] * 4

    async def test_of_a_message_with_a_key_holds_the_key(self, rig: Rig) -> None:
        seen: list[bytes] = []

        async def handle(claim: Claim) -> Outcome:
            seen.append(claim.payload)
            return Retry(0.3, counts=False) if len(seen) == 1 else DONE

        await rig.work(handle, max_workers=3)
        await rig.put("a", "b", "c", key="customer")
        await rig.witness.wait(events.Handled, count=3)
        assert seen == [b"a", b"a", b"b", b"c"]


class TestUndecided:
    @pytest.mark.parametrize(
        ("policy", "kind"),
        [("retry", events.Retried), ("release", events.Released), ("done", events.Handled), ("dead", events.Died)],
    )
    async def test_is_settled_as_the_policy_says(self, driver_rig: Rig, policy: str, kind: type[object]) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Undecided() if claim.deliveries_count == 1 else Retry(3600.0)

        await driver_rig.work(handle, on_undecided=policy, retry_strategy=ConstantRetry(delay_seconds=3600))
        await driver_rig.put("a")
        await driver_rig.witness.wait(kind)

    async def test_one_that_is_released_again_and_again_ends_by_its_deliveries(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Undecided()

        await rig.work(handle, on_undecided="release", crash_limit=2)
        await rig.put("a")
        await rig.witness.wait(events.Died, reason="crash_loop")
        (letter,) = await rig.dead()
        assert (letter["attempts_count"], letter["deliveries_count"]) == (0, 3)

    async def test_a_dead_one_says_why(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Undecided()

        await rig.work(handle, on_undecided="dead")
        await rig.put("a")
        await rig.witness.wait(events.Died)
        (letter,) = await rig.dead()
        assert (letter["failure_reason"], letter["attempts_count"], letter["error_type"]) == ("undecided", 1, None)


class TestRelease:
    @pytest.mark.parametrize(("counts", "deliveries"), [(True, 2), (False, 1)])
    async def test_counts_as_a_delivery_if_it_says_so(self, driver_rig: Rig, counts: bool, deliveries: int) -> None:
        async def handle(claim: Claim) -> Outcome:
            return DONE if driver_rig.witness.of(events.Released) else Release(counts=counts)

        await driver_rig.work(handle)
        await driver_rig.put("a")
        handled = await driver_rig.witness.wait(events.Handled)
        assert handled.deliveries_count == deliveries

    async def test_leaves_the_due_time_as_it_was(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return Release()

        await rig.put("a")
        due = (await rig.row())["next_attempt_at"]
        worker = await rig.work(handle)
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
    handled: list[bytes] = []

    async def handle(claim: Claim) -> Outcome:
        handled.append(claim.payload)
        return Retry(0.01) if claim.payload == b"slow" and claim.attempts_count == 0 else DONE

    async def is_overdue() -> bool:
        return bool(await rig.one(IS_OVERDUE))

    async def is_passed() -> bool:
        return b"quick" in handled

    await rig.sql(SLOW_RETRY)
    await rig.sql(ON_RETRY)
    async with rig.engine.connect() as gate:
        await gate.execute(text("select pg_advisory_lock(72)"))
        await gate.commit()
        try:
            await rig.work(handle, max_workers=2)
            await rig.witness.wait(events.ListenerReady)
            (first,) = await rig.put("slow")
            await eventually(is_overdue)
            await rig.put("quick")
            await eventually(is_passed)
        finally:
            await gate.execute(text("select pg_advisory_unlock(72)"))
            await gate.commit()
        await rig.witness.wait(events.Handled, id=first)
    await rig.sql("drop function slow_retry cascade")
    assert handled == [b"slow", b"quick", b"slow"]
