"""Who has failed often enough and long enough; how many to ask for after failures."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faststream_outbox._internal.poison import Narrowing, Strikes
from tests.cases import each


@each(
    ("failures", "found"),
    [
        # Nobody is to blame before so many failures,
        ([(1, 100.0 * number, 3, 3.0) for number in range(4)], [False, False, True, True]),
        # before so many seconds,
        ([(1, at, 3, 3.0) for at in (7.0, 7.1, 7.2, 9.9, 10.0)], [False, False, False, False, True]),
        # and one failure may reach both.
        ([(1, at, 3, 3.0) for at in (0.0, 2.9, 3.0)], [False, False, True]),
        # One is enough where one is asked for.
        ([(1, 5.0, 1, 0.0)], [True]),
        # What is asked for may differ from failure to failure.
        ([(1, 0.0, times, 0.0) for times in (10, 3, 3)], [False, False, True]),
        # Two items do not share.
        ([(1, 0.0, 2, 1.0), (2, 5.0, 2, 1.0), (2, 5.5, 2, 1.0), (1, 6.0, 2, 1.0)], [False, False, False, True]),
    ],
)
def test_who_has_failed_often_and_long_enough_is_to_blame(
    failures: list[tuple[int, float, int, float]], found: list[bool]
) -> None:
    strikes: Strikes[int] = Strikes()
    assert [strikes.failed(item, at, times=times, seconds=seconds) for item, at, times, seconds in failures] == found


def test_what_was_forgotten_begins_anew() -> None:
    strikes: Strikes[int] = Strikes()
    strikes.failed(1, 0.0, times=2, seconds=3.0)
    strikes.forget([1])
    found = [strikes.failed(1, at, times=2, seconds=3.0) for at in (9.0, 10.0, 12.0)]
    assert found == [False, False, True]


def test_others_are_not_forgotten_with_it() -> None:
    strikes: Strikes[int] = Strikes()
    for item in (1, 2):
        strikes.failed(item, 0.0, times=2, seconds=0.0)
    strikes.forget([1, 3])
    assert strikes.failed(2, 0.0, times=2, seconds=0.0)


def test_there_are_any_until_all_are_forgotten() -> None:
    strikes: Strikes[int] = Strikes()
    seen = [bool(strikes)]
    for item in (1, 2):
        strikes.failed(item, 0.0, times=1, seconds=0.0)
    for items in ([], [1], [2]):
        strikes.forget(items)
        seen.append(bool(strikes))
    assert seen == [False, True, True, False]


def test_the_oldest_goes_beyond_the_most() -> None:
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


@each(
    ("most", "options", "happened", "limits"),
    [
        # It begins with the most, and halves until one is left.
        (100, {}, [], [100]),
        (100, {}, [100] * 8, [100, 50, 25, 12, 6, 3, 1, 1, 1]),
        # It quarters until the least is left.
        (1000, {"least": 16, "part": 4}, [1000] * 4, [1000, 250, 62, 16, 16]),
        # It is a part of what was asked, where that was less.
        (100, {}, [10], [100, 5]),
        # It doubles up to the most.
        (100, {}, [24, *["worked"] * 5], [100, 12, 24, 48, 96, 100, 100]),
        (100, {}, [4, "reset"], [100, 2, 100]),
        # It stays where there is no room.
        (1, {"least": 1, "part": 4}, [1, "worked"], [1, 1, 1]),
        (16, {"least": 16, "part": 4}, [16, "worked"], [16, 16, 16]),
    ],
)
def test_after_failures_less_is_asked_for(
    most: int, options: dict[str, int], happened: list[int | str], limits: list[int]
) -> None:
    narrowing = Narrowing(most, **options)
    seen = [narrowing.limit]
    for one in happened:
        narrowing.failed(one) if isinstance(one, int) else getattr(narrowing, one)()
        seen.append(narrowing.limit)
    assert seen == limits


@given(
    least=st.integers(1, 20),
    more=st.integers(0, 1000),
    part=st.integers(2, 4),
    asked=st.lists(st.none() | st.integers(1, 2000)),
)
def test_it_stays_between_the_least_and_the_most(least: int, more: int, part: int, asked: list[int | None]) -> None:
    narrowing = Narrowing(least + more, least=least, part=part)
    for count in asked:
        narrowing.worked() if count is None else narrowing.failed(count)
        assert least <= narrowing.limit <= least + more
