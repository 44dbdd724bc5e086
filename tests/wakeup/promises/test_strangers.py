"""Whoever may connect may NOTIFY: whatever the payload says, workers go on, and it costs them little."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import ListenerDeaf, ListenerLost, StatementFailed
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.plan import MOST_UNSEEN_LANES, ClaimPlan
from faststream_outbox._internal.wakeup.hint import (
    HIGHEST_ID,
    LONGEST_DUE_IN,
    MOST_COUNTED,
    MOST_PRIORITIES,
    Hint,
    parsed,
)
from faststream_outbox._internal.wakeup.watcher import MOST_AHEAD, SequenceTracker
from faststream_outbox.events import Event
from tests.cases import each
from tests.waiting import eventually
from tests.wakeup.conftest import Channel, asleep

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=5,
)
ITEMS = st.tuples(
    st.none() | st.just("orders") | ANYTHING,
    st.integers() | ANYTHING,
    st.lists(st.integers() | ANYTHING, max_size=4) | ANYTHING,
    st.integers(0, 15) | ANYTHING,
    st.floats() | ANYTHING,
    st.integers() | ANYTHING,
).map(list)
PAYLOADS = st.text() | st.builds(
    lambda sender, items: json.dumps({"from": sender, "hints": items}),
    st.text() | ANYTHING,
    st.lists(ITEMS, max_size=3) | ANYTHING,
)

ABSURD = [
    ["orders", 1, [40000], 3, 0, 0],
    ["orders", 1, [-32769], 3, 0, 0],
    ["orders", 1, [True], 3, 0, 0],
    ["orders", 1, [0.5], 3, 0, 0],
    ["orders", 1, list(range(MOST_PRIORITIES + 1)), 3, 0, 0],
    ["orders", 1, {"1": 2}, 3, 0, 0],
    ["orders", -1, [], 3, 0, 0],
    ["orders", 10**30, [], 3, 0, 0],
    ["orders", 1, [], 3, 1e300, 0],
    ["orders", 1, [], 3, -1.0, 0],
    ["orders", 1, [], -1, 0, 0],
    [["orders"], 1, [], 3, 0, 0],
    [5, 1, [], 3, 0, 0],
    ["orders", 1, [], 3, 0, -1],
    ["orders", 1, [], 3, 0, 2**63],
    ["orders", 1, [], 3, 0, True],
]


def payload_of(item: object) -> str:
    return json.dumps({"from": "stranger", "hints": [item]})


@pytest.mark.slow
@given(PAYLOADS)
@example('{"from": 5, "hints": []}')
@example(payload_of(["orders", 1, [0], 3, float("nan"), 0]))
@example(payload_of(["orders", 1, [0], 3, float("inf"), 0]))
def test_hints_stay_within_what_statements_take(payload: str) -> None:
    sender, hints = parsed(payload)
    assert isinstance(sender, str)
    for hint in hints:
        assert hint.queue is None or isinstance(hint.queue, str)
        assert 0 <= hint.count <= MOST_COUNTED
        assert 0 <= hint.due_in <= LONGEST_DUE_IN
        assert 0 <= hint.last_id <= HIGHEST_ID
        assert len(hint.priorities) <= MOST_PRIORITIES
        assert all(type(priority) is int and -32768 <= priority <= 32767 for priority in hint.priorities)


@each("item", ABSURD)
def test_a_hint_out_of_bounds_is_none_of_ours(item: object) -> None:
    assert parsed(payload_of(item)) == ("", [Hint(payload_of(item))])


LETTERS = "".join(map(chr, [*range(1, 0x250), 0x202E, 0xFFFF, 0x10FFFF]))


def flood() -> Iterator[str]:
    for number in range(500):
        # The longest that the server takes has 7,999 bytes.
        yield (LETTERS[number % len(LETTERS) :] * 40).encode()[: 7999 - number % 50].decode(errors="ignore")


NESTED = '{"from": "x", "hints": ' + "[" * 3500 + "]" * 3500 + "}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "payloads", [[*map(payload_of, ABSURD), NESTED, '{"hints": [["q", Infinity, [], 3, 0]]}'], list(flood())]
)
async def test_claiming_goes_on_whatever_a_stranger_notifies(
    payloads: list[str], driver_engine: AsyncEngine, table: Table, channel: Channel
) -> None:
    async with asleep(driver_engine, table, watch=False) as (client, handled):
        troubles: list[Event] = []
        client.events.subscribe(troubles.append, StatementFailed, ListenerLost, ListenerDeaf)
        for payload in payloads:
            channel.say(payload)
        async with driver_engine.begin() as connection:
            await connection.execute(table.insert().values(queue="orders", payload=b"after all that"))
        channel.say("orders")
        claim = await eventually(lambda: None if handled.empty() else handled.get_nowait())
        assert (claim.payload, troubles) == (b"after all that", [])


@pytest.mark.slow
async def test_priorities_that_do_not_exist_make_few_lanes() -> None:
    plan = ClaimPlan(["orders", "mails"], WorkerOptions())
    for start in range(-32768, 32768, 64):
        plan.hint(Hint(None, priorities=frozenset(range(start, start + 64))), now=1.0)
    assert len(plan.lanes) <= MOST_UNSEEN_LANES + 4


async def test_a_priority_beyond_those_few_is_looked_for_by_a_scan() -> None:
    plan = ClaimPlan(["orders"], WorkerOptions())
    plan.scanned({}, 1.0, 0.001)
    for priority in range(1, MOST_UNSEEN_LANES + 2):
        assert plan.scan_at > 1.5
        plan.hint(Hint("orders", priorities=frozenset((priority,)), keyed=False), now=1.4)
    assert plan.scan_at <= 1.5


async def test_lanes_that_have_messages_do_not_count_as_unseen() -> None:
    plan = ClaimPlan(["orders"], WorkerOptions())
    seen = {("orders", priority, False): None for priority in range(1000)}
    plan.scanned(seen, 1.0, 0.001)
    plan.hint(Hint("orders", priorities=frozenset((5000,)), keyed=False), now=1.0)
    assert ("orders", 5000, False) in plan.lanes


def test_hints_that_lie_about_their_number_do_not_blind_the_watcher() -> None:
    tracker = SequenceTracker()
    tracker.read(1, 0.0)
    for _ in range(1000):
        tracker.account(MOST_COUNTED, HIGHEST_ID)
    tracker.read(2, 0.1)
    assert tracker.read(2 + MOST_AHEAD, 0.2)
