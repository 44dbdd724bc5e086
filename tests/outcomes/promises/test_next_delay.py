"""What the engine makes of a user's own strategy: which method it asks, and how it reads the answer."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.outcomes.retry import (
    DEFAULT_RETRY,
    LONGEST_DELAY_SECONDS,
    ConstantRetry,
    ExponentialRetry,
    NoRetry,
    RetryStrategyProto,
    check_strategy,
    next_delay,
)
from faststream_outbox.errors import InvalidOption
from tests.cases import each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
on_a_busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MICROSECOND = 1e-6


def ask(
    strategy: object, attempts_count: int = 1, exception: BaseException | None = None, now: datetime = NOW
) -> float | None:
    facts: dict[str, Any] = {"first_attempt_at": NOW, "last_attempt_at": NOW, "attempts_count": attempts_count}
    return next_delay(strategy, now=now, exception=exception, **facts)


class TransientError(Exception):
    pass


class TransientOnly(ExponentialRetry):
    def get_next_attempt_at(self, *, exception=None, **kw):  # type: ignore[no-untyped-def]  # As users write it.
        if exception and not isinstance(exception, TransientError):
            return None  # terminal — DELETE
        return super().get_next_attempt_at(exception=exception, **kw)


class TransientOnlyByDelay(ExponentialRetry):
    def get_next_attempt_delay(self, *, exception: BaseException | None = None, **attempt: Any) -> float | None:
        if exception and not isinstance(exception, TransientError):
            return None
        return super().get_next_attempt_delay(exception=exception, **attempt)


@dataclass
class DelayOnly:
    """Looks like a strategy by its newer method alone."""

    answer: object

    def get_next_attempt_delay(self, **_attempt: object) -> object:
        return self.answer


@dataclass
class AtOnly:
    """Looks like a strategy by its older method alone."""

    answer: object

    def get_next_attempt_at(self, **_attempt: object) -> object:
        return self.answer


class TestOverriding:
    @each("strategy_type", [TransientOnly, TransientOnlyByDelay])
    @each(
        ("what", "attempts_count", "exception", "expected"),
        [
            *(
                ("a transient error follows the schedule", n, TransientError(), delay)
                for n, delay in ((1, 1), (2, 2), (3, 4))
            ),
            ("another error is given up", 1, KeyError(), None),
            ("a nack without exception follows the schedule", 1, None, 1.0),
            ("super still enforces max_attempts", 4, TransientError(), None),
        ],
    )
    def test_of_one_method_decides(
        self,
        strategy_type: type[ExponentialRetry],
        what: str,
        attempts_count: int,
        exception: BaseException | None,
        expected: float | None,
    ) -> None:
        delay = ask(strategy_type(initial_delay_seconds=1, max_attempts=4), attempts_count, exception)
        assert delay == pytest.approx(expected, abs=MICROSECOND)

    def test_an_overridden_delay_shows_in_get_next_attempt_at(self) -> None:
        at = TransientOnlyByDelay(initial_delay_seconds=1).get_next_attempt_at(
            first_attempt_at=NOW, last_attempt_at=NOW, attempts_count=1, exception=KeyError()
        )
        assert at is None

    @each("time_first", [True, False])
    def test_overrides_of_both_methods_add_up_whichever_comes_first(self, time_first: bool) -> None:
        class Doubled(ExponentialRetry):
            def get_next_attempt_delay(self, **attempt: Any) -> float | None:
                delay = super().get_next_attempt_delay(**attempt)
                return None if delay is None else 2 * delay

        class Later(ExponentialRetry):
            def get_next_attempt_at(self, **attempt: Any) -> datetime | None:
                at = super().get_next_attempt_at(**attempt)
                return None if at is None else at + timedelta(seconds=100)

        bases = (Later, Doubled) if time_first else (Doubled, Later)
        both = type("Both", bases, {})(initial_delay_seconds=4)
        assert ask(both) == pytest.approx(108.0, abs=MICROSECOND)

    def test_a_subclass_may_add_fields_of_its_own(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Patient(ConstantRetry):
            patience: float

            def get_next_attempt_delay(self, **attempt: Any) -> float | None:
                delay = super().get_next_attempt_delay(**attempt)
                return None if delay is None else delay + self.patience

        assert ask(Patient(delay_seconds=1, patience=41)) == 42.0

    def test_no_retry_can_be_overridden(self) -> None:
        class OnlyTimeouts(NoRetry):
            def get_next_attempt_delay(self, **attempt: Any) -> float | None:
                return 5.0 if isinstance(attempt["exception"], TimeoutError) else None

        assert [ask(OnlyTimeouts(), 1, TimeoutError()), ask(OnlyTimeouts(), 1, KeyError())] == [5.0, None]

    def test_what_an_override_raises_passes_through(self) -> None:
        class Broken(ConstantRetry):
            def get_next_attempt_delay(self, **_attempt: object) -> float | None:
                raise LookupError

        with pytest.raises(LookupError):
            ask(Broken(delay_seconds=1))


class TestNextDelay:
    def test_every_fact_reaches_the_strategy_by_name(self) -> None:
        times = {"first_attempt_at": NOW - timedelta(hours=1), "last_attempt_at": NOW - timedelta(minutes=1)}
        facts = times | {"attempts_count": 3, "exception": ValueError("boom")}
        seen: dict[str, object] = {}

        class Recording:
            def get_next_attempt_delay(self, **attempt: object) -> float:
                seen.update(attempt)
                return 1.0

        next_delay(Recording(), now=NOW, **facts)  # type: ignore[arg-type]  # One dict for the call and the check.
        assert seen == facts

    @each(
        ("answer", "expected"),
        [
            (None, None),
            (2, 2.0),
            (2.5, 2.5),
            (0, 0.0),
            (-3.0, 0.0),
            (-math.inf, 0.0),
            (math.inf, LONGEST_DELAY_SECONDS),
            (10**400, LONGEST_DELAY_SECONDS),
            (-(10**400), 0.0),
        ],
    )
    def test_a_delay_is_bounded(self, answer: object, expected: float | None) -> None:
        assert ask(DelayOnly(answer)) == expected

    @each(
        ("answer", "expected"),
        [
            (None, None),
            (NOW + timedelta(seconds=1.5), 1.5),
            ((NOW + timedelta(seconds=60)).astimezone(ZoneInfo("Asia/Tokyo")), 60.0),
            (NOW - timedelta(days=1), 0.0),
            (datetime.max.replace(tzinfo=ZoneInfo("America/New_York")), LONGEST_DELAY_SECONDS),
        ],
    )
    def test_a_time_becomes_a_delay_from_now(self, answer: object, expected: float | None) -> None:
        assert ask(AtOnly(answer)) == expected

    def test_a_time_is_measured_from_now_and_not_from_the_failure(self) -> None:
        assert ask(AtOnly(NOW + timedelta(seconds=10)), now=NOW + timedelta(seconds=4)) == 6.0

    @each("answer", [math.nan, True, "5", timedelta(seconds=5), NOW, Decimal(5)])
    def test_a_delay_that_is_not_a_number_of_seconds_is_refused(self, answer: object) -> None:
        with pytest.raises(InvalidOption, match=r"DelayOnly.get_next_attempt_delay is .* it must be seconds"):
            ask(DelayOnly(answer))

    @each("answer", [NOW.replace(tzinfo=None), 5.0, timedelta(seconds=5), NOW.date()])
    def test_a_time_that_is_not_an_aware_datetime_is_refused(self, answer: object) -> None:
        with pytest.raises(InvalidOption, match=r"AtOnly.get_next_attempt_at is .* with a time zone"):
            ask(AtOnly(answer))

    @pytest.mark.slow
    @on_a_busy_machine
    @given(answer=st.floats() | st.integers() | st.none() | st.datetimes(timezones=st.timezones()) | st.datetimes())
    def test_any_answer_is_a_delay_in_range_or_none_or_refused(self, answer: object) -> None:
        for strategy in (DelayOnly(answer), AtOnly(answer)):
            try:
                delay = ask(strategy)
            except InvalidOption:
                continue
            assert delay is None or 0.0 <= delay <= LONGEST_DELAY_SECONDS

    @each("strategy", [DEFAULT_RETRY, NoRetry(), DelayOnly(1), AtOnly(NOW)])
    def test_a_strategy_of_any_shape_passes_the_check(self, strategy: object) -> None:
        check_strategy(strategy)

    @each("strategy", [NoRetry, ExponentialRetry, object(), 5, None])
    def test_what_is_no_strategy_object_is_refused(self, strategy: object) -> None:
        with pytest.raises(InvalidOption, match="pass a strategy object"):
            check_strategy(strategy)

    @each("strategy", [DEFAULT_RETRY, NoRetry(), DelayOnly(1)])
    def test_strategies_satisfy_the_protocol(self, strategy: object) -> None:
        assert isinstance(strategy, RetryStrategyProto)
