"""Who has failed often enough and long enough; how many to ask for after failures."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faststream_outbox._internal.poison import Narrowing, Strikes
from tests.cases import each


class TestStrikes:
    def test_nobody_is_to_blame_before_so_many_failures(self) -> None:
        strikes: Strikes[int] = Strikes()
        found = [strikes.failed(1, 100.0 * number, times=3, seconds=3.0) for number in range(4)]
        assert found == [False, False, True, True]

    def test_nobody_is_to_blame_before_so_many_seconds(self) -> None:
        strikes: Strikes[int] = Strikes()
        found = [strikes.failed(1, at, times=3, seconds=3.0) for at in (7.0, 7.1, 7.2, 9.9, 10.0)]
        assert found == [False, False, False, False, True]

    def test_one_failure_may_reach_both(self) -> None:
        strikes: Strikes[int] = Strikes()
        assert [strikes.failed(1, at, times=3, seconds=3.0) for at in (0.0, 2.9, 3.0)] == [False, False, True]

    def test_one_failure_is_enough_where_one_is_asked_for(self) -> None:
        assert Strikes[int]().failed(1, 5.0, times=1, seconds=0.0)

    def test_what_is_asked_for_may_differ_from_failure_to_failure(self) -> None:
        strikes: Strikes[int] = Strikes()
        assert [strikes.failed(1, 0.0, times=times, seconds=0.0) for times in (10, 3, 3)] == [False, False, True]

    def test_two_items_do_not_share(self) -> None:
        strikes: Strikes[int] = Strikes()
        failures = [(1, 0.0), (2, 5.0), (2, 5.5), (1, 6.0)]
        found = [strikes.failed(item, at, times=2, seconds=1.0) for item, at in failures]
        assert found == [False, False, False, True]

    def test_what_was_forgotten_begins_anew(self) -> None:
        strikes: Strikes[int] = Strikes()
        strikes.failed(1, 0.0, times=2, seconds=3.0)
        strikes.forget([1])
        found = [strikes.failed(1, at, times=2, seconds=3.0) for at in (9.0, 10.0, 12.0)]
        assert found == [False, False, True]

    def test_others_are_not_forgotten_with_it(self) -> None:
        strikes: Strikes[int] = Strikes()
        for item in (1, 2):
            strikes.failed(item, 0.0, times=2, seconds=0.0)
        strikes.forget([1, 3])
        assert strikes.failed(2, 0.0, times=2, seconds=0.0)

    def test_there_are_any_until_all_are_forgotten(self) -> None:
        strikes: Strikes[int] = Strikes()
        seen = [bool(strikes)]
        for item in (1, 2):
            strikes.failed(item, 0.0, times=1, seconds=0.0)
        for items in ([], [1], [2]):
            strikes.forget(items)
            seen.append(bool(strikes))
        assert seen == [False, True, True, False]

    def test_the_oldest_goes_beyond_the_most(self) -> None:
        strikes: Strikes[int] = Strikes(most=2)
        for item in (1, 2, 1, 3):
            strikes.failed(item, 0.0, times=9, seconds=0.0)
        # The first one failed first, however often it has failed since.
        assert [strikes.failed(item, 0.0, times=2, seconds=0.0) for item in (2, 3)] == [True, True]
        assert not strikes.failed(1, 0.0, times=2, seconds=0.0)


class StrikesMachine(RuleBasedStateMachine):
    """Items fail and are forgotten, as time goes by: held against a list of all that happened."""

    @initialize(times=st.integers(1, 4), seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def begin(self, times: int, seconds: float) -> None:
        self.times, self.seconds = times, seconds
        self.strikes: Strikes[int] = Strikes()
        self.now = 0.0
        self.failures: dict[int, list[float]] = {}

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 5.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @rule(item=st.integers(0, 2))
    def fails(self, item: int) -> None:
        before = self.failures.setdefault(item, [])
        before.append(self.now)
        is_to_blame = self.strikes.failed(item, self.now, times=self.times, seconds=self.seconds)
        assert is_to_blame == (len(before) >= self.times and self.now - before[0] >= self.seconds)

    @rule(items=st.lists(st.integers(0, 2)))
    def forgotten(self, items: list[int]) -> None:
        self.strikes.forget(items)
        for item in items:
            self.failures.pop(item, None)

    @invariant()
    def there_are_any(self) -> None:
        if hasattr(self, "strikes"):
            assert bool(self.strikes) == bool(self.failures)


TestStrikesMachine = StrikesMachine.TestCase


class TestNarrowing:
    def test_begins_with_the_most(self) -> None:
        assert Narrowing(100).limit == 100

    def test_halves_until_one_is_left(self) -> None:
        narrowing, seen = Narrowing(100), []
        for _ in range(8):
            narrowing.failed(100)
            seen.append(narrowing.limit)
        assert seen == [50, 25, 12, 6, 3, 1, 1, 1]

    def test_quarters_until_the_least_is_left(self) -> None:
        narrowing, seen = Narrowing(1000, least=16, part=4), []
        for _ in range(4):
            narrowing.failed(1000)
            seen.append(narrowing.limit)
        assert seen == [250, 62, 16, 16]

    def test_is_a_part_of_what_was_asked_where_that_was_less(self) -> None:
        narrowing = Narrowing(100)
        narrowing.failed(10)
        assert narrowing.limit == 5

    def test_doubles_up_to_the_most(self) -> None:
        narrowing, seen = Narrowing(100), []
        narrowing.failed(24)
        for _ in range(5):
            narrowing.worked()
            seen.append(narrowing.limit)
        assert seen == [24, 48, 96, 100, 100]

    def test_is_the_most_again_after_a_reset(self) -> None:
        narrowing = Narrowing(100)
        narrowing.failed(4)
        narrowing.reset()
        assert narrowing.limit == 100

    @each(("most", "least"), [(1, 1), (16, 16)])
    def test_stays_where_there_is_no_room(self, most: int, least: int) -> None:
        narrowing = Narrowing(most, least=least, part=4)
        narrowing.failed(most)
        narrowing.worked()
        assert narrowing.limit == most

    @given(
        least=st.integers(1, 20),
        more=st.integers(0, 1000),
        part=st.integers(2, 4),
        asked=st.lists(st.none() | st.integers(1, 2000)),
    )
    def test_stays_between_the_least_and_the_most(
        self, least: int, more: int, part: int, asked: list[int | None]
    ) -> None:
        narrowing = Narrowing(least + more, least=least, part=part)
        for count in asked:
            narrowing.worked() if count is None else narrowing.failed(count)
            assert least <= narrowing.limit <= least + more
