"""Failures block their key and nothing else; retries, parking, deferring, the cap, and what operators do."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import URL

from faststream_outbox import events
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import ConstantRetry, ExponentialRetry, NoRetry
from faststream_outbox.log import Outbox, OutboxMessage
from tests.connections.troubles import TROUBLES
from tests.log.opened import Collector, drain, reading
from tests.log.rig import LogRig
from tests.waiting import eventually

SOON = ConstantRetry(delay_seconds=0.01, max_attempts=3)
NEVER = ConstantRetry(delay_seconds=3600)


class Failing:
    """A subscriber that fails on some payloads, and keeps what it was given."""

    def __init__(self, *bad: Any, error: Exception | None = None) -> None:
        self.bad = set(bad)
        self.error = error or ValueError("bad")
        self.seen: list[Any] = []
        self.done: list[Any] = []

    async def __call__(self, message: OutboxMessage) -> None:
        self.seen.append(message.payload)
        if message.payload in self.bad:
            raise self.error
        self.done.append(message.payload)


async def states(rig: LogRig) -> list[tuple[int, str, int]]:
    return [(row["position"], row["state"], row["attempts"]) for row in await rig.deferrals()]


async def dispatch_until(outbox: Outbox, subscriber: Any, count: int) -> None:
    """Dispatch until the subscriber was called so often."""
    async with asyncio.timeout(30):
        while len(subscriber.seen) < count:
            await outbox.dispatch(subscriber, "g")
            await asyncio.sleep(0.005)


async def test_failure_blocks_its_key_and_nothing_else(driver_rig: LogRig) -> None:
    rig = driver_rig
    outbox = await rig.another(retry_strategy=NEVER)
    await rig.put("k", 1, 2)
    await rig.put("other", 3)
    failing = Failing(1)
    done = await outbox.dispatch(failing, "g")
    assert failing.done == [3]
    assert (done.handled, len(done.failures), done.passed) == (1, 1, 1)
    assert await states(rig) == [(1, "retry", 1), (2, "deferred", 0)]


async def test_next_messages_of_a_blocked_key_are_deferred_in_later_batches_too(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NEVER)
    await rig.put("k", 1)
    failing = Failing(1)
    await outbox.dispatch(failing, "g")
    await rig.put("k", 2)
    await outbox.dispatch(failing, "g")
    assert failing.seen == [1]
    assert [state for _, state, _ in await states(rig)] == ["retry", "deferred"]


@pytest.mark.parametrize("count", [3, 30], ids=["few", "more than a batch"])
async def test_key_is_drained_in_order_before_what_is_fresh(rig: LogRig, count: int) -> None:
    outbox = await rig.another(retry_strategy=NEVER, batch_size=7)
    await rig.put("k", *range(1, count + 1))
    failing = Failing(1)
    await drain(outbox, failing, "g", batch_size=50)
    failing.bad.clear()
    await rig.ask("update {deferred} set due = now()")
    await rig.put("k", count + 1)
    await drain(outbox, failing, "g")
    assert failing.done == list(range(1, count + 2))
    assert await states(rig) == []


async def test_many_keys_that_wait_do_not_overtake_each_others_messages(rig: LogRig) -> None:
    """More keys are due at once than a batch takes: those that it leaves stay blocked."""
    outbox = await rig.another(retry_strategy=NEVER, batch_size=3)
    keys = [f"k{number}" for number in range(10)]
    for key in keys:
        await rig.put(key, [key, 1], [key, 2])
    failing = Collector()
    fails = True

    async def handle(message: OutboxMessage) -> None:
        if fails and message.payload[1] == 1:
            raise ValueError(message.payload)
        await failing(message)

    await outbox.dispatch(handle, "g", batch_size=100)
    fails = False
    await rig.ask("update {deferred} set due = now()")
    for key in keys:
        await rig.put(key, [key, 3])
    await drain(outbox, handle, "g")
    assert {key: [number for _, number in failing.of(key)] for key in keys} == {key: [1, 2, 3] for key in keys}


async def test_parked_after_max_attempts_with_its_error(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=SOON)
    await rig.put("k", 1, attempt="x")
    failing = Failing(1)
    await dispatch_until(outbox, failing, 3)
    (parked,) = await outbox.parked.list("g")
    assert (parked.attempts, parked.state, parked.key, parked.error_type) == (3, "parked", "k", "ValueError")
    assert parked.message is not None
    assert (parked.message.payload, parked.message.metadata) == (1, {"attempt": "x"})
    assert "ValueError: bad" in (parked.traceback or "")
    assert not await outbox.dispatch(failing, "g")


async def test_skip_goes_on_without_the_parked_one(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NoRetry(), on_parked="skip")
    await rig.put("k", 1, 2)
    failing = Failing(1)
    await drain(outbox, failing, "g")
    assert failing.done == [2]
    told = [type(event) for event in rig.heard if isinstance(event, events.Died | events.Handled)]
    assert told == [events.Died, events.Handled]


async def test_hold_key_waits_for_an_operator(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NoRetry(), on_parked="hold_key")
    await rig.put("k", 1, 2)
    await rig.put("other", 3)
    failing = Failing(1)
    await drain(outbox, failing, "g")
    await rig.put("k", 4)
    await drain(outbox, failing, "g")
    assert failing.done == [3]
    failing.bad.clear()
    assert await outbox.parked.retry("g") == [1]
    await drain(outbox, failing, "g")
    assert failing.done == [3, 1, 2, 4]


@pytest.mark.parametrize("ended", ["resolve", "skip"])
async def test_ending_the_parked_one_frees_its_key_in_order(rig: LogRig, ended: str) -> None:
    outbox = await rig.another(retry_strategy=NoRetry(), on_parked="hold_key")
    await rig.put("k", 1, 2, 3)
    failing = Failing(1)
    await drain(outbox, failing, "g")
    assert await getattr(outbox.parked, ended)("g", 1) == [1]
    await rig.put("k", 4)
    await drain(outbox, failing, "g")
    assert failing.done == [2, 3, 4]


async def test_resolve_leaves_alone_what_is_not_parked(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NEVER)
    await rig.put("k", 1)
    await drain(outbox, Failing(1), "g")
    assert await outbox.parked.resolve("g", 1) == []
    assert await outbox.parked.skip("g", 1) == [1]
    assert await states(rig) == []


async def test_retried_by_an_operator_begins_its_attempts_anew(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=SOON)
    await rig.put("k", 1)
    failing = Failing(1)
    await dispatch_until(outbox, failing, 3)
    await outbox.parked.retry("g", positions=[1])
    await dispatch_until(outbox, failing, 6)
    assert [parked.attempts for parked in await outbox.parked.list("g")] == [3]


async def test_retried_by_an_operator_begins_its_time_anew(rig: LogRig) -> None:
    """A limit of time counts from the first attempt after the operator's word, not from the one of last week."""
    strategy = ConstantRetry(delay_seconds=0.01, max_total_delay_seconds=60)
    outbox = await rig.another(retry_strategy=strategy)
    await rig.put("k", 1)
    failing = Failing(1)
    await outbox.dispatch(failing, "g")
    await rig.ask("update {deferred} set state = 'parked', first_attempt_at = now() - interval '1 week'")
    await outbox.parked.retry("g")
    await outbox.dispatch(failing, "g")
    assert [state for _, state, _ in await states(rig)] == ["retry"]


async def test_delays_grow_as_the_strategy_says(rig: LogRig) -> None:
    outbox = await rig.another(
        retry_strategy=ExponentialRetry(initial_delay_seconds=100, multiplier=3, jitter_factor=0.0)
    )
    await rig.put("k", 1)
    failing = Failing(1)
    await outbox.dispatch(failing, "g")
    await rig.ask("update {deferred} set due = now()")
    await outbox.dispatch(failing, "g")
    (row,) = await rig.ask("select extract(epoch from due - now())::float8 as pause, attempts from {deferred}")
    assert row["attempts"] == 2
    assert 290 < row["pause"] < 301
    retried = [(event.deliveries_count, event.delay_seconds) for event in rig.reported(events.Retried)]
    assert retried == [(1, 100), (2, 300)]


async def test_cap_stops_the_slot_of_its_key_and_tells(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NEVER, max_deferred=3, batch_size=1)
    same_slot = next(f"s{n}" for n in range(10_000) if slot_of(f"s{n}") == slot_of("k"))
    other_slot = next(f"o{n}" for n in range(10_000) if slot_of(f"o{n}") != slot_of("k"))
    failing = Failing(0)
    for number in range(6):
        await rig.put("k", number)
    await rig.put(same_slot, "same")
    await rig.put(other_slot, "other")
    await drain(outbox, failing, "g")
    assert failing.done == ["other"]
    assert len(await states(rig)) <= 4
    assert {(event.key, event.group) for event in rig.reported(events.KeyHalted)} == {("k", "g")}


async def test_halted_slot_goes_on_in_order_when_its_key_is_free(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NEVER, max_deferred=3, batch_size=2)
    same_slot = next(f"s{n}" for n in range(10_000) if slot_of(f"s{n}") == slot_of("k"))
    failing = Failing(0)
    for number in range(8):
        await rig.put("k", number)
        await rig.put(same_slot, f"s{number}")
    await drain(outbox, failing, "g")
    failing.bad.clear()
    await rig.ask("update {deferred} set due = now()")
    await drain(outbox, failing, "g")
    assert [one for one in failing.done if isinstance(one, int)] == list(range(8))
    assert [one for one in failing.done if isinstance(one, str)] == [f"s{number}" for number in range(8)]


async def test_cap_holds_within_one_batch(rig: LogRig) -> None:
    """A batch of a thousand messages of a failing key does not defer a thousand."""
    outbox = await rig.another(retry_strategy=NEVER, max_deferred=5, batch_size=100)
    await rig.put("k", *range(50))
    await drain(outbox, Failing(0), "g")
    assert len(await states(rig)) <= 6


@pytest.mark.parametrize("name", TROUBLES)
async def test_a_handler_that_meets_trouble_of_the_database_uses_up_no_attempt(
    rig: LogRig, database_url: URL, name: str
) -> None:
    outbox = await rig.another(retry_strategy=NoRetry())
    await rig.put("k", 1, 2)
    done: list[int] = []
    troubles = [TROUBLES[name]] * 4

    async def handle(message: OutboxMessage) -> None:
        if message.payload == 1 and troubles:
            await troubles.pop()(database_url)
        done.append(message.payload)

    while troubles:
        await outbox.dispatch(handle, "g")
        assert (await states(rig))[0] == (1, "retry", 0)
        await rig.ask("update {deferred} set due = now()")
    await drain(outbox, handle, "g")
    assert done == [1, 2]


@pytest.mark.parametrize("way", ["dispatch", "run"])
async def test_one_that_fails_again_at_once_does_not_keep_what_is_fresh_waiting(rig: LogRig, way: str) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.001, max_attempts=None))
    await rig.put("k", 1)
    failing = Failing(1)
    await outbox.dispatch(failing, "g")
    await rig.put("other", 2)
    if way == "dispatch":
        await outbox.dispatch(failing, "g")
        await outbox.dispatch(failing, "g")
        assert failing.done == [2]
    else:
        async with reading(outbox, failing, "g"):
            await eventually(lambda: failing.done == [2])
