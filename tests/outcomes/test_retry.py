"""Retry strategies: schedules, limits, jitter and the refusal of options that cannot work."""

import copy
import math
import pickle
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.outcomes.retry import (
    DEFAULT_RETRY,
    LONGEST_DELAY_SECONDS,
    ConstantRetry,
    ExponentialRetry,
    LinearRetry,
    NoRetry,
    next_delay,
)
from faststream_outbox.errors import InvalidOption
from tests.cases import each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
on_a_busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
Strategy = ConstantRetry | LinearRetry | ExponentialRetry

seconds = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
jitters = st.floats(min_value=0, max_value=2)
counts = st.integers(min_value=-(10**400), max_value=10**400)
aware_times = st.datetimes(timezones=st.timezones())


@st.composite
def strategies_of_every_kind(draw: st.DrawFn) -> Strategy:
    limits: dict[str, Any] = {
        "jitter_factor": draw(jitters),
        "max_attempts": draw(st.none() | st.integers(min_value=1)),
        "max_total_delay_seconds": draw(st.none() | seconds),
    }
    kind = draw(st.sampled_from(["constant", "linear", "exponential"]))
    if kind == "constant":
        return ConstantRetry(delay_seconds=draw(seconds), **limits)
    if kind == "linear":
        step = draw(st.just(0.0) | seconds)
        return LinearRetry(initial_delay_seconds=draw(seconds), step_seconds=step, **limits)
    return ExponentialRetry(
        initial_delay_seconds=draw(seconds),
        multiplier=draw(seconds),
        max_delay_seconds=draw(st.none() | seconds),
        **limits,
    )


def delay_of(strategy: Strategy | NoRetry, attempts_count: int, *, spent: float = 0.0) -> float | None:
    return strategy.get_next_attempt_delay(
        first_attempt_at=NOW - timedelta(seconds=spent), last_attempt_at=NOW, attempts_count=attempts_count
    )


class TestSchedule:
    @each(
        ("strategy", "expected"),
        [
            (ConstantRetry(delay_seconds=7), [7.0, 7.0, 7.0, 7.0]),
            (LinearRetry(initial_delay_seconds=1, step_seconds=0.5), [1.0, 1.5, 2.0, 2.5]),
            (LinearRetry(initial_delay_seconds=3, step_seconds=0), [3.0, 3.0, 3.0, 3.0]),
            (ExponentialRetry(initial_delay_seconds=1), [1.0, 2.0, 4.0, 8.0]),
            (ExponentialRetry(initial_delay_seconds=2, multiplier=3), [2.0, 6.0, 18.0, 54.0]),
            (ExponentialRetry(initial_delay_seconds=8, multiplier=0.5), [8.0, 4.0, 2.0, 1.0]),
            (ExponentialRetry(initial_delay_seconds=1, max_delay_seconds=3), [1.0, 2.0, 3.0, 3.0]),
            (ExponentialRetry(initial_delay_seconds=9, max_delay_seconds=3), [3.0, 3.0, 3.0, 3.0]),
            (NoRetry(), [None, None, None, None]),
        ],
    )
    def test_delays_after_the_first_four_failures(
        self, strategy: Strategy | NoRetry, expected: list[float | None]
    ) -> None:
        assert [delay_of(strategy, failures) for failures in (1, 2, 3, 4)] == expected

    @each(
        ("failed_at", "delay", "expected"),
        [
            (NOW, 90, NOW + timedelta(seconds=90)),
            # Real seconds, when clocks go forward.
            (datetime(2026, 3, 29, 1, 30, tzinfo=BERLIN), 3600, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
            # It stops at the last datetime.
            (datetime(9999, 12, 31, 23, tzinfo=UTC), 86_400, datetime.max.replace(tzinfo=UTC)),
        ],
    )
    def test_get_next_attempt_at_is_the_failure_plus_the_delay(
        self, failed_at: datetime, delay: float, expected: datetime
    ) -> None:
        strategy = ConstantRetry(delay_seconds=delay)
        at = strategy.get_next_attempt_at(first_attempt_at=failed_at, last_attempt_at=failed_at, attempts_count=1)
        assert at == expected

    @each("attempts_count", [5_000, 10**400])
    def test_exponential_growth_beyond_a_float_is_cut_to_the_longest_delay(self, attempts_count: int) -> None:
        assert delay_of(ExponentialRetry(initial_delay_seconds=1), attempts_count) == LONGEST_DELAY_SECONDS

    def test_a_shrinking_schedule_stays_near_zero_for_a_huge_count(self) -> None:
        assert delay_of(ExponentialRetry(initial_delay_seconds=1, multiplier=0.5), 10**400) == 0.0

    def test_default_retry_is_the_documented_one(self) -> None:
        assert repr(DEFAULT_RETRY) == (
            "ExponentialRetry(jitter_factor=0.2, max_attempts=10, max_total_delay_seconds=None, "
            "initial_delay_seconds=1.0, multiplier=2.0, max_delay_seconds=300.0)"
        )

    @on_a_busy_machine
    @given(
        first=seconds,
        step=seconds,
        multiplier=st.floats(min_value=1, allow_infinity=False, allow_nan=False),
        failures=st.integers(min_value=1, max_value=10**6),
    )
    def test_delays_never_shrink_without_jitter(
        self, first: float, step: float, multiplier: float, failures: int
    ) -> None:
        linear = LinearRetry(initial_delay_seconds=first, step_seconds=step)
        for strategy in (linear, ExponentialRetry(initial_delay_seconds=first, multiplier=multiplier)):
            delays = [delay_of(strategy, failures + more) for more in (0, 1)]
            assert delays == sorted(delay for delay in delays if delay is not None)

    @pytest.mark.slow
    @on_a_busy_machine
    @given(strategies_of_every_kind(), aware_times, aware_times, aware_times, counts)
    def test_a_delay_is_in_range_and_a_time_is_aware_whatever_the_input(
        self, strategy: Strategy, first: datetime, last: datetime, now: datetime, count: int
    ) -> None:
        facts: dict[str, Any] = {"first_attempt_at": first, "last_attempt_at": last, "attempts_count": count}
        delay = next_delay(strategy, now=now, exception=None, **facts)
        assert delay is None or 0.0 <= delay <= LONGEST_DELAY_SECONDS
        at = strategy.get_next_attempt_at(**facts)
        assert at is None or at.tzinfo is UTC


class TestLimits:
    def test_max_attempts_is_the_number_of_handler_runs(self) -> None:
        strategy = ConstantRetry(delay_seconds=1, max_attempts=5)
        assert [delay_of(strategy, runs) for runs in (1, 4, 5, 6)] == [1.0, 1.0, None, None]

    @pytest.mark.slow
    @on_a_busy_machine
    @given(strategy=strategies_of_every_kind(), over=st.integers(min_value=0))
    def test_max_attempts_is_respected_by_every_strategy(self, strategy: Strategy, over: int) -> None:
        assume(strategy.max_attempts is not None)
        assert strategy.max_attempts is not None
        assert delay_of(strategy, strategy.max_attempts + over) is None

    @each(("spent", "expected"), [(0.0, 10.0), (90.0, 10.0), (91.0, None)])
    def test_max_total_delay_counts_from_the_first_attempt_to_the_next_one(
        self, spent: float, expected: float | None
    ) -> None:
        strategy = ConstantRetry(delay_seconds=10, max_total_delay_seconds=100)
        assert delay_of(strategy, 2, spent=spent) == expected

    def test_max_total_delay_counts_real_seconds_when_clocks_go_back(self) -> None:
        delay = ConstantRetry(delay_seconds=1, max_total_delay_seconds=1800).get_next_attempt_delay(
            first_attempt_at=datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0),
            last_attempt_at=datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
            attempts_count=2,
        )
        assert delay is None

    @each("naive", ["first_attempt_at", "last_attempt_at"])
    def test_a_naive_attempt_time_is_refused(self, naive: str) -> None:
        times = {"first_attempt_at": NOW, "last_attempt_at": NOW, naive: NOW.replace(tzinfo=None)}
        with pytest.raises(InvalidOption, match=f"{naive} is .* with a time zone"):
            ConstantRetry(delay_seconds=1, max_total_delay_seconds=9).get_next_attempt_delay(**times, attempts_count=1)


class TestJitter:
    @on_a_busy_machine
    @given(delay=st.floats(min_value=1e-3, max_value=1e6), jitter=jitters, seed=st.integers())
    def test_stays_within_half_the_factor_on_each_side(self, delay: float, jitter: float, seed: int) -> None:
        generator = random.Random(seed)
        for strategy in (
            ConstantRetry(delay_seconds=delay, jitter_factor=jitter, _random=generator),
            LinearRetry(initial_delay_seconds=delay, step_seconds=1, jitter_factor=jitter, _random=generator),
            ExponentialRetry(initial_delay_seconds=delay, jitter_factor=jitter, _random=generator),
        ):
            jittered = delay_of(strategy, 1)
            assert jittered is not None
            assert abs(jittered - delay) <= delay * jitter / 2 * (1 + 1e-9) + delay * 1e-12

    def test_reaches_both_sides_of_the_delay(self) -> None:
        strategy = ConstantRetry(delay_seconds=100, jitter_factor=0.2, _random=random.Random(1))
        drawn = [delay_of(strategy, 1) or math.nan for _ in range(200)]
        assert 90 <= min(drawn) < 92
        assert 108 < max(drawn) <= 110

    def test_does_not_exceed_the_cap(self) -> None:
        strategy = ExponentialRetry(
            initial_delay_seconds=1, max_delay_seconds=60, jitter_factor=1, _random=random.Random(1)
        )
        assert max(delay_of(strategy, 20) or math.nan for _ in range(200)) == 60.0

    def test_comes_from_the_given_generator(self) -> None:
        one, other = (ConstantRetry(delay_seconds=100, jitter_factor=1, _random=random.Random(7)) for _ in range(2))
        assert [delay_of(one, 1) for _ in range(5)] == [delay_of(other, 1) for _ in range(5)]

    def test_the_generator_is_no_part_of_equality_hash_and_repr(self) -> None:
        plain = ConstantRetry(delay_seconds=1)
        seeded = ConstantRetry(delay_seconds=1, _random=random.Random(7))
        assert (plain, hash(plain), repr(plain)) == (seeded, hash(seeded), repr(seeded))


class TestOptions:
    @each("value", [0, -1, math.nan, math.inf, -math.inf, 10**400, True, "1", timedelta(1), Decimal(1)])
    @each(
        ("build", "name"),
        [
            (lambda v: ConstantRetry(delay_seconds=v), "delay_seconds"),
            (lambda v: LinearRetry(initial_delay_seconds=v, step_seconds=1), "initial_delay_seconds"),
            (lambda v: ExponentialRetry(initial_delay_seconds=v), "initial_delay_seconds"),
            (lambda v: ExponentialRetry(initial_delay_seconds=1, multiplier=v), "multiplier"),
            (lambda v: ExponentialRetry(initial_delay_seconds=1, max_delay_seconds=v), "max_delay_seconds"),
            (lambda v: ConstantRetry(delay_seconds=1, max_total_delay_seconds=v), "max_total_delay_seconds"),
        ],
    )
    def test_a_number_that_is_not_finite_and_above_zero_is_refused(
        self, build: Callable[[object], object], name: str, value: object
    ) -> None:
        with pytest.raises(InvalidOption, match=rf": {name}=.* cannot work: pass .* above 0"):
            build(value)

    @each("value", [-1, math.nan, math.inf, True, "1", None])
    def test_a_step_below_zero_or_not_finite_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidOption, match=r"step_seconds=.* pass seconds, 0 or more"):
            LinearRetry(initial_delay_seconds=1, step_seconds=value)

    @each("value", [-0.1, 2.1, math.nan, math.inf, True, "1", None])
    def test_a_jitter_factor_outside_0_to_2_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidOption, match=r"jitter_factor=.* pass a number from 0 to 2"):
            ConstantRetry(delay_seconds=1, jitter_factor=value)

    @each("value", [0, -1, True, 1.0, math.nan, "3"])
    def test_max_attempts_that_is_no_whole_number_from_1_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidOption, match=r"max_attempts=.* pass a whole number from 1, or None"):
            ConstantRetry(delay_seconds=1, max_attempts=value)

    def test_one_attempt_is_a_limit_too(self) -> None:
        assert delay_of(ConstantRetry(delay_seconds=1, max_attempts=1), 1) is None

    def test_a_bad_option_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="delay_seconds"):
            ConstantRetry(delay_seconds=-1)

    def test_arguments_are_keyword_only(self) -> None:
        with pytest.raises(TypeError, match="positional"):
            ConstantRetry(1)  # type: ignore[call-arg]  # The mistake under test.

    def test_a_strategy_cannot_be_changed(self) -> None:
        with pytest.raises(FrozenInstanceError):
            DEFAULT_RETRY.max_attempts = 3  # type: ignore[misc]  # The mistake under test.

    @each("duplicate", [copy.deepcopy, lambda strategy: pickle.loads(pickle.dumps(strategy))])
    def test_a_strategy_can_be_copied(self, duplicate: Callable[[object], object]) -> None:
        assert duplicate(DEFAULT_RETRY) == DEFAULT_RETRY
