"""One contract for two: the tables in memory answer every named statement as PostgreSQL does."""

from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.memory.statement_values import (
    DEATH,
    OTHER_TOKEN,
    SETTLING,
    TOKEN,
    TTL,
    heads,
    held,
    keys,
    lanes,
    message,
    places,
    several,
)
from tests.memory.two_tables import Two, look_at_keys, publish


async def timer(two: Two, number: int, conflict: str = "ignore", name: str = "t", **fields: Any) -> Any:
    one = message(number, **fields) | {"timer_id": name, "conflict": conflict}
    return await two.ask("publish_timers", **several(one))


async def test_new_timers_leave_the_ones_that_are_there(two: Two) -> None:
    await timer(two, 1)
    many = [message(2), message(3) | {"timer_id": "t"}, message(4) | {"timer_id": "u"}]
    await two.ask("publish_new_timers", **several(*({"timer_id": None, **one} for one in many)))
    await two.compare()


async def test_one_message_is_published_with_its_fields(two: Two) -> None:
    await two.ask("publish_one", **message(7, headers='{"b": 1, "a": [null, "x"]}', key="k", priority=-3, due_in=200.0))
    await two.compare()


async def test_ids_of_many_come_in_their_order(two: Two) -> None:
    many = [message(3), message(1, queue="other"), message(2, due_at=-5.0)]
    assert await two.ask("publish_many", **several(*many)) == [[3], [1], [2]]
    await two.compare()


@pytest.mark.parametrize("due_in", [100.0, 900.0], ids=["earlier", "later"])
@pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])
async def test_a_taken_timer(two: Two, conflict: str, due_in: float) -> None:
    await timer(two, 1, due_in=500.0, headers='{"first": true}')
    await timer(two, 2, conflict, due_in=due_in, key="k", priority=1)
    await two.compare()


@pytest.mark.parametrize("conflict", ["ignore", "extend", "replace"])
async def test_a_leased_timer_is_not_touched(two: Two, conflict: str) -> None:
    await timer(two, 1)
    await two.ask("claim", **lanes(("orders", 0)))
    assert await timer(two, 2, conflict, due_in=500.0) == []
    await two.compare()


async def test_a_replaced_timer_starts_over(two: Two) -> None:
    await timer(two, 1)
    await two.ask("claim", **lanes(("orders", 0)))
    await two.ask("settle_retry", **held(1, **SETTLING["settle_retry"]))
    await timer(two, 2, "replace", due_in=50.0)
    await two.compare()


async def test_timers_and_plain_messages_in_one_call(two: Two) -> None:
    await timer(two, 1)
    names = [None, "t", "u", None, "u"]
    many = [message(number) | {"timer_id": name, "conflict": "ignore"} for number, name in enumerate(names, start=2)]
    await two.ask("publish_timers", **several(*many))
    await two.compare()


async def test_a_timer_is_cancelled_only_where_it_is_and_nobody_holds_it(two: Two) -> None:
    await timer(two, 1)
    await timer(two, 2, name="held", due_in=0.0, queue="other")
    await two.ask("claim", **lanes(("other", 0)))
    for queue, name in (("orders", "held"), ("other", "held"), ("orders", "t"), ("orders", "t")):
        await two.ask("cancel_timer", queue=queue, timer_id=name)
    await two.compare()


async def test_a_look_at_a_queue_keeps_the_first_to_fall_due(two: Two) -> None:
    await publish(two, 1, due_in=500.0)
    await publish(two, 2, priority=5)
    await publish(two, 3, key="k")
    await publish(two, 4, queue="other")
    for limit in (1, 2, 100):
        await two.ask("unprocessed_of_queue", queue="orders", limit=limit)
        await two.ask("unprocessed", limit=limit)


@pytest.mark.parametrize("at", [datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, tzinfo=UTC)], ids=str)
async def test_the_ends_of_the_calendar(two: Two, at: datetime) -> None:
    await two.ask("publish_one", **message(1, due_at=at))
    await two.compare()
    await two.ask("next_due", queues=["orders"], priorities=[0], keyed=[False], floor_ats=[None])


async def test_a_claim_takes_what_is_due_and_free_up_to_its_quota(two: Two) -> None:
    await publish(two, 1, 2, 3, 4)
    await publish(two, 5, due_in=200.0)
    await publish(two, 6, key="k")
    await publish(two, 7, priority=1)
    assert len(await two.ask("claim", **lanes(("orders", 0), quota=3))) == 3
    await two.ask("claim", **lanes(("orders", 0), ("orders", 1), ("nothing", 0), token=OTHER_TOKEN))
    await two.compare()


async def test_a_claim_of_nothing_tells_the_time(two: Two) -> None:
    assert len(await two.ask("claim", **lanes(("orders", 0)))) == 1


@pytest.mark.parametrize("passed", [590.0, 610.0], ids=["living", "expired"])
async def test_a_lease_ends_after_its_time(two: Two, passed: float) -> None:
    await publish(two, 1)
    await two.ask("claim", **lanes(("orders", 0)))
    await two.advance(passed)
    await two.ask("claim", **lanes(("orders", 0), token=OTHER_TOKEN))
    await two.compare()


@pytest.mark.parametrize("grace", [0.0, 100.0])
@pytest.mark.parametrize("floor", [None, -400.0, -200.0, -50.0, 50.0])
async def test_a_claim_starts_above_the_floor_or_the_grace(two: Two, floor: float | None, grace: float) -> None:
    for number, age in enumerate((300.0, 150.0, 70.0, 20.0), start=1):
        await two.ask("publish_one", **message(number, due_at=-age))
        await two.ask("publish_one", **message(number + 10, due_at=-age, key=f"k{number}"))
    await two.ask("find_keys", **places(("orders", 0), ("other", 0), floor=floor, grace=grace))
    await two.ask("claim", **places(("orders", 0), floor=floor, grace=grace), ttls=[TTL], token=TOKEN, unheard=[])
    await two.compare()


async def test_keys_are_found_in_due_order_up_to_the_quota(two: Two) -> None:
    await publish(two, 1, key="b", due_at=-10.0)
    await publish(two, 2, key="a", due_at=-30.0)
    await publish(two, 3, key="a", due_at=-20.0)
    await publish(two, 4, key="c", due_in=200.0)
    await two.ask("find_keys", **places(("orders", 0)))
    await two.ask("find_keys", **places(("orders", 0), quota=2))


async def test_keys_are_walked_in_order(two: Two) -> None:
    await publish(two, 1, key="b")
    await publish(two, 2, key="c", due_in=200.0)
    await publish(two, 3, key="a", priority=4)
    await publish(two, 4, key="d")
    await two.ask("claim_keys", **keys("d"))
    for after, most in product(("", "a", "b", "z"), (1, 2, 10)):
        await two.ask("walk_keys", queue="orders", after=after, keys=most, ttl=TTL, held_by_dead=True, unheard=[])


async def test_keys_are_found_by_due_time_up_to_so_many_messages(two: Two) -> None:
    await publish(two, 1, 2, key="b", due_at=-10.0)
    await publish(two, 3, key="c", due_in=200.0)
    await publish(two, 4, key="a", priority=4, due_at=-20.0)
    await publish(two, 5, key="d", due_at=-30.0)
    await two.ask("claim_keys", **keys("d"))
    for most in (1, 2, 3, 10):
        await two.ask("claimable_keys", **heads(("orders", 0), ("orders", 4), ("nothing", 0), most=most))


@pytest.mark.parametrize("held_by_dead", [False, True], ids=["continue", "block"])
async def test_a_key_that_a_dead_letter_holds_is_found_where_it_may_go_on(two: Two, *, held_by_dead: bool) -> None:
    await publish(two, 1, 2, key="a")
    await two.ask("claim_keys", **keys("a", run=1))
    await two.ask("settle_dead", **held(1, **DEATH))
    await look_at_keys(two, held_by_dead=held_by_dead)


async def test_a_survey_tells_priorities_and_kinds(two: Two) -> None:
    for number, priority in enumerate((0, 0, 5, -5), start=1):
        await publish(two, number, priority=priority, key="k" if number % 2 else None)
    await publish(two, 9, queue="other", due_in=500.0)
    await two.ask("survey", queues=["orders", "other", "nothing"])


async def test_the_next_due_time_lies_above_the_floor(two: Two) -> None:
    await publish(two, 1, due_at=-100.0)
    await publish(two, 2, due_in=200.0)
    await publish(two, 3, due_in=400.0, key="k")
    asked: dict[str, Any] = {"queues": ["orders"] * 3, "priorities": [0, 0, 1], "keyed": [False, True, False]}
    for floor in (None, -50.0, 100.0, 300.0):
        await two.ask("next_due", **asked, floor_ats=[floor] * 3)


@pytest.mark.parametrize("name", SETTLING)
@pytest.mark.parametrize("token", [TOKEN, OTHER_TOKEN], ids=["held", "lost"])
async def test_settling_needs_the_token(two: Two, name: str, token: UUID) -> None:
    await publish(two, 1, 2, 3)
    await two.ask("claim", **lanes(("orders", 0), quota=2))
    await two.advance(100.0)
    answer = await two.ask(name, **held(1, 3, 99, token=token, **SETTLING[name]))
    assert len(answer) == (1 if token is TOKEN else 0)
    await two.ask("remains", ids=[1, 2, 3, 99])
    await two.compare()


async def test_a_lease_that_has_run_out_is_renewed_without_a_key_only(two: Two) -> None:
    await publish(two, 1)
    await publish(two, 2, key="a")
    await two.ask("claim", **lanes(("orders", 0)))
    await two.ask("claim_keys", **keys("a"))
    await two.advance(TTL + 1.0)
    assert await two.ask("renew", **held(1, 2, ttls=TTL)) == [[1, True, False], [2, False, True]]
    await two.compare()


@pytest.mark.parametrize("attempt", [0, 1])
async def test_a_retry_counts_or_not(two: Two, attempt: int) -> None:
    await publish(two, 1)
    for _ in range(2):
        await two.ask("claim", **lanes(("orders", 0)))
        await two.ask("settle_retry", **held(1, delays=0.0, attempts=attempt))
        await two.advance(10.0)
    await two.compare()


async def test_a_paused_queue_is_not_claimed_from(two: Two) -> None:
    await publish(two, 1)
    await publish(two, 2, key="a")
    for name in ("pause", "pause", "paused", "resume", "resume", "pause"):
        await two.ask(name, **({} if name == "paused" else {"queue": "orders"}))
    await two.ask("claim", **lanes(("orders", 0)))
    await two.ask("claim_keys", **keys("a"))
    await look_at_keys(two)
    await two.ask("unprocessed_of_queue", queue="orders", limit=10)
    await two.compare()


QUEUES = st.sampled_from(["orders", "other"])
PRIORITIES = st.sampled_from([0, 0, 0, 3])
KEYS = st.sampled_from([None, "a", "b"])
DUE_INS = st.sampled_from([0.0, 0.0, 0.0, 200.0, 500.0])
TIMERS = st.sampled_from(["t", "u"])
TOKENS = st.integers(10, 10_000).map(lambda number: UUID(int=number))
# No sum of these is near a due time or the end of a lease.
STEPS = st.sampled_from([70.0, 330.0])

OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), QUEUES, KEYS, PRIORITIES, DUE_INS, st.integers(1, 3)),
    st.tuples(st.just("timer"), QUEUES, TIMERS, st.sampled_from(["ignore", "extend", "replace"]), DUE_INS, KEYS),
    st.tuples(st.just("cancel"), QUEUES, TIMERS),
    st.tuples(st.just("claim"), TOKENS, st.integers(1, 4)),
    st.tuples(st.just("claim_keys"), TOKENS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from(sorted(SETTLING)), st.integers(0, 1000)),
    st.tuples(st.just("snooze"), st.integers(0, 1000)),
    st.tuples(st.just("pause"), st.sampled_from(["pause", "resume"]), QUEUES),
    st.tuples(st.just("advance"), STEPS),
    st.tuples(st.just("look")),
)


async def perform(two: Two, operation: tuple[Any, ...], number: int, leases: list[tuple[int, UUID]]) -> None:
    """One step on both sides; `leases` are all that were ever taken, so that lost ones are tried too."""
    match operation:
        case ("publish", queue, key, priority, due_in, count):
            numbers = [number + place for place in range(count)]
            await publish(two, *numbers, queue=queue, key=key, priority=priority, due_in=due_in)
        case ("timer", queue, name, conflict, due_in, key):
            await timer(two, number, conflict, name=name, queue=queue, due_in=due_in, key=key)
        case ("cancel", queue, name):
            await two.ask("cancel_timer", queue=queue, timer_id=name)
        case ("claim", token, quota):
            names = [("orders", 0), ("other", 0), ("orders", 3)]
            rows = await two.ask("claim", **lanes(*names, token=token, quota=quota))
            leases += [(row[0], token) for row in rows if row[0] is not None]
        case ("claim_keys", token, run, held_by_dead):
            rows = await two.ask("claim_keys", **keys("a", "b", token=token, run=run, held_by_dead=held_by_dead))
            leases += [(row[0], token) for row in rows]
        case ("settle", name, which) if leases:
            lease, token = leases[which % len(leases)]
            await two.ask(name, **held(lease, token=token, **SETTLING[name]))
        case ("snooze", which) if leases:
            lease, token = leases[which % len(leases)]
            await two.ask("settle_retry", **held(lease, token=token, delays=500.0, attempts=0))
        case ("pause", name, queue):
            await two.ask(name, queue=queue)
        case ("advance", seconds):
            await two.advance(seconds)
        case ("look",):
            await look(two)
        case _:
            # To settle, while nothing was ever leased.
            assert not leases


async def look(two: Two) -> None:
    """Every question that changes nothing."""
    both = [("orders", 0), ("other", 0), ("orders", 3)]
    await two.ask("find_keys", **places(*both, quota=3))
    await look_at_keys(two)
    await two.ask("survey", queues=["orders", "other"])
    await two.ask("unprocessed_of_queue", queue="orders", limit=3)
    await two.ask(
        "next_due",
        queues=[queue for queue, _ in both] * 2,
        priorities=[priority for _, priority in both] * 2,
        keyed=[False] * 3 + [True] * 3,
        floor_ats=[None] * 6,
    )


@pytest.mark.slow
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(OPERATIONS, min_size=4, max_size=20))
async def test_any_sequence_of_statements_leaves_the_same(two: Two, operations: list[tuple[Any, ...]]) -> None:
    await two.clear()
    leases: list[tuple[int, UUID]] = []
    for place, operation in enumerate(operations):
        await perform(two, operation, 10 * (place + 1), leases)
        await two.compare()
    await look(two)
