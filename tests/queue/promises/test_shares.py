"""Shares: equal among queues, by priority within one, nothing starved, never more than there is room for."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.queue.lanes import PATIENCE, Lane, shares
from tests.cases import each

on_a_busy_machine = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def lane(queue: str = "orders", priority: int = 0, waited: float | None = None) -> Lane:
    """A lane that was passed over `waited` seconds before time 1000."""
    return Lane(queue, priority, False, passed_over_since=None if waited is None else 1000.0 - waited)


def by_queue(taken: list[tuple[Lane, int]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for found, quota in taken:
        counts[found.queue] += quota
    return counts


def by_priority(taken: list[tuple[Lane, int]]) -> dict[int, int]:
    return {found.priority: quota for found, quota in taken}


lanes = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.sampled_from((None, 0.0, PATIENCE - 1, PATIENCE + 1))),
    min_size=1,
    max_size=12,
    unique_by=lambda drawn: drawn[:2],
).map(lambda drawn: [lane(*each) for each in drawn])


class TestSum:
    @on_a_busy_machine
    @given(lanes, st.integers(1, 30), st.integers(0, 9))
    def test_is_the_room_and_no_lane_is_there_twice_or_for_nothing(
        self, drawn: list[Lane], room: int, turn: int
    ) -> None:
        taken = shares(drawn, room, turn, now=1000.0)
        assert sum(quota for _, quota in taken) == room
        assert len({id(found) for found, _ in taken}) == len(taken)
        assert all(quota > 0 for _, quota in taken)

    def test_of_no_lanes_is_nothing(self) -> None:
        assert shares([], 10, 0, now=1000.0) == []


class TestQueues:
    @on_a_busy_machine
    @given(lanes, st.integers(1, 30), st.integers(0, 9))
    def test_differ_by_one_at_most(self, drawn: list[Lane], room: int, turn: int) -> None:
        counts = by_queue(shares(drawn, room, turn, now=1000.0))
        each = [counts[queue] for queue in {found.queue for found in drawn}]
        assert max(each) - min(each) <= 1

    @on_a_busy_machine
    @given(st.integers(1, 12), st.integers(1, 12))
    def test_are_served_equally_over_as_many_turns_as_there_are(self, queues: int, room: int) -> None:
        drawn = [lane(f"q{number:02}") for number in range(queues)]
        total: Counter[str] = Counter()
        for turn in range(queues):
            total += by_queue(shares(drawn, room, turn, now=1000.0))
        assert len(set(total.values())) == 1

    def test_with_room_for_one_take_turns(self) -> None:
        drawn = [lane("a"), lane("b"), lane("c")]
        served = [shares(drawn, 1, turn, now=1000.0)[0][0].queue for turn in range(6)]
        assert served == ["a", "b", "c", "a", "b", "c"]


class TestPriorities:
    def test_the_highest_takes_all(self) -> None:
        assert by_priority(shares([lane(priority=-1), lane(priority=5), lane()], 10, 0, now=1000.0)) == {5: 10}

    @each(("room", "expected"), [(50, {5: 45, 0: 5}), (2, {5: 1, 0: 1})])
    def test_one_that_was_passed_over_for_long_gets_a_tenth_and_at_least_one(
        self, room: int, expected: dict[int, int]
    ) -> None:
        drawn = [lane(priority=5), lane(waited=PATIENCE + 0.1)]
        assert by_priority(shares(drawn, room, 0, now=1000.0)) == expected

    def test_with_room_for_one_it_takes_the_turn_and_waits_again(self) -> None:
        low = lane(waited=PATIENCE + 0.1)
        turns = [by_priority(shares([lane(priority=5), low], 1, turn, now=1000.0)) for turn in range(2)]
        assert turns == [{0: 1}, {5: 1}]

    @each("waited", [None, PATIENCE - 0.1])
    def test_one_that_has_not_waited_long_gets_nothing(self, waited: float | None) -> None:
        assert by_priority(shares([lane(priority=5), lane(waited=waited)], 10, 0, now=1000.0)) == {5: 10}

    def test_waiting_counts_from_the_first_time_it_was_passed_over(self) -> None:
        drawn = [lane(priority=5), lane()]
        shares(drawn, 10, 0, now=1000.0)
        shares(drawn, 10, 1, now=1001.0)
        assert by_priority(shares(drawn, 10, 2, now=1000.5 + PATIENCE)) == {5: 9, 0: 1}

    def test_the_first_has_not_been_passed_over(self) -> None:
        first = lane(priority=5, waited=PATIENCE * 2)
        shares([first, lane()], 10, 0, now=1000.0)
        assert first.passed_over_since is None

    @on_a_busy_machine
    @given(lanes, st.integers(1, 5), st.sampled_from((PATIENCE / 20, PATIENCE * 2)))
    def test_every_lane_is_served_in_the_end_however_seldom_there_is_room(
        self, drawn: list[Lane], room: int, seconds: float
    ) -> None:
        served: set[tuple[str, int]] = set()
        for turn in range(400):
            taken = shares(drawn, room, turn, now=1000.0 + turn * seconds)
            served.update((found.queue, found.priority) for found, _ in taken)
        assert served == {(found.queue, found.priority) for found in drawn}

    def test_a_low_priority_does_not_take_every_turn_where_handlers_are_slow(self) -> None:
        drawn = [lane(priority=5), lane()]
        taken = [shares(drawn, 1, turn, now=1000.0 + turn * PATIENCE * 2)[0][0].priority for turn in range(10)]
        assert taken.count(5) >= taken.count(0) >= 1
