"""Keys: the tables in memory claim, hold and hand them on as PostgreSQL does."""

import pytest

from tests.memory.statement_values import DEATH, OTHER_TOKEN, held, keys
from tests.memory.two_tables import Two, look_at_keys, publish


async def test_a_run_of_a_key_is_claimed_and_the_rest_is_told_of(two: Two) -> None:
    await publish(two, 1, 2, 3, key="a")
    await publish(two, 4, 5, key="b")
    await publish(two, 6, key="c", due_in=200.0)
    assert len(await two.ask("claim_keys", **keys("a", "b", "c", "d"))) == 4
    await two.compare()


async def test_a_held_key_is_not_claimed(two: Two) -> None:
    await publish(two, 1, 2, 3, key="a")
    await two.ask("claim_keys", **keys("a", run=1))
    assert await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN)) == []
    await two.compare()


@pytest.mark.parametrize("depth", [3, 30])
async def test_leases_behind_a_run_that_have_run_out_are_ended_before_the_key_is_claimed(two: Two, depth: int) -> None:
    await publish(two, *range(1, depth + 1), key="a")
    await two.ask("claim_keys", **keys("a", run=depth))
    await two.advance(610.0)
    ((number, *_),) = await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN, run=1))
    assert number is None
    assert await two.ask("settle_done", **held(depth)) == []
    assert len(await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN, run=1))) == 1
    await two.compare()


async def test_a_run_that_has_run_out_is_taken_over_at_once_where_nothing_is_behind_it(two: Two) -> None:
    await publish(two, 1, 2, 3, key="a")
    await two.ask("claim_keys", **keys("a", run=2))
    await two.advance(610.0)
    assert len(await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN, run=2))) == 2
    await two.compare()


@pytest.mark.parametrize("attempt", [0, 1], ids=["snoozed", "failed"])
@pytest.mark.parametrize("passed", [100.0, 300.0], ids=["waiting", "due again"])
async def test_a_key_waits_for_its_retry(two: Two, passed: float, attempt: int) -> None:
    await publish(two, 1, 2, 3, key="a")
    await two.ask("claim_keys", **keys("a", run=1))
    await two.ask("settle_retry", **held(1, delays=200.0, attempts=attempt))
    await two.advance(passed)
    await look_at_keys(two)
    await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN))
    await two.compare()


async def test_a_timer_that_was_never_begun_does_not_hold_its_key(two: Two) -> None:
    await publish(two, 1, key="a", due_in=200.0)
    await publish(two, 2, key="a")
    await look_at_keys(two)
    await two.ask("claim_keys", **keys("a"))
    await two.compare()


@pytest.mark.parametrize("held_by_dead", [False, True], ids=["continue", "block"])
async def test_a_dead_letter_holds_its_key_where_asked(two: Two, *, held_by_dead: bool) -> None:
    await publish(two, 1, 2, key="a")
    await two.ask("claim_keys", **keys("a", run=1))
    await two.ask("settle_dead", **held(1, **DEATH))
    await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN, held_by_dead=held_by_dead))
    await two.compare()


async def test_a_parked_message_holds_its_key(two: Two) -> None:
    await publish(two, 1, 2, key="a", headers='{"x": 1}')
    await two.ask("claim_keys", **keys("a", run=1))
    await two.ask("settle_apart", **held(1, reasons="rejected"))
    await two.ask("claim_keys", **keys("a", token=OTHER_TOKEN))
    await two.ask("next_due", queues=["orders"], priorities=[0], keyed=[True], floor_ats=[None])
    await two.compare()
