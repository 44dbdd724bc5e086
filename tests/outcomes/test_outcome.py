"""`resolved` leaves nothing open, whatever the strategy and the policy say."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from faststream_outbox._internal.outcomes.outcome import (
    DONE,
    RELEASE,
    SETTLED,
    Dead,
    FinalOutcome,
    OnUndecided,
    Outcome,
    Release,
    Retry,
    Undecided,
    resolved,
)
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from tests.cases import each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ERROR = ValueError("no such order")


@dataclass
class Asked:
    """A strategy that keeps what it was asked, and answers or raises."""

    answer: Any = 7.0
    question: dict[str, Any] | None = None

    def get_next_attempt_delay(self, **question: Any) -> Any:
        self.question = question
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def final(
    outcome: Outcome,
    strategy: object = None,
    on_undecided: OnUndecided = "retry",
    first_attempt_at: datetime | None = None,
    attempts_count: int = 1,
) -> FinalOutcome:
    return resolved(
        outcome,
        strategy=strategy or ConstantRetry(delay_seconds=3),
        on_undecided=on_undecided,
        now=NOW,
        first_attempt_at=first_attempt_at,
        attempts_count=attempts_count,
    )


class TestDecided:
    @each("outcome", [DONE, RELEASE, Release(counts=True), SETTLED, Dead("rejected", ERROR)])
    def test_stays_as_it_is(self, outcome: Outcome) -> None:
        assert final(outcome) == outcome

    def test_retry_keeps_its_own_delay(self) -> None:
        assert final(Retry(0.5, ERROR), NoRetry()) == Retry(0.5, ERROR)

    @each("delay", [math.nan, math.inf, 1e300, "soon"])
    def test_retry_with_a_delay_that_cannot_be_written_becomes_one_that_can(self, delay: Any) -> None:
        outcome = final(Retry(delay, ERROR))
        assert isinstance(outcome, Dead) or (isinstance(outcome, Retry) and 0 <= (outcome.delay or 0) < 1e10)


class TestRetry:
    @each(
        ("what", "retry", "strategy", "expected"),
        [
            ("gets its delay from the strategy", Retry(error=ERROR), None, Retry(3.0, ERROR)),
            ("keeps whether it counts", Retry(counts=False), None, Retry(3.0, None, counts=False)),
            ("is dead when the strategy gives up", Retry(error=ERROR), NoRetry(), Dead("retry_terminal", ERROR)),
        ],
    )
    def test_is_what_the_strategy_says(self, what: str, retry: Retry, strategy: object, expected: FinalOutcome) -> None:
        assert final(retry, strategy) == expected

    def test_is_dead_when_the_strategy_raises_and_keeps_the_handlers_error_behind(self) -> None:
        broken = RuntimeError("broken strategy")
        assert final(Retry(error=ERROR), Asked(broken)) == Dead("retry_terminal", broken)
        assert broken.__context__ is ERROR

    def test_is_dead_when_the_strategy_answers_nonsense(self) -> None:
        assert isinstance(final(Retry(error=ERROR), Asked("soon")), Dead)

    @each("first", [NOW - timedelta(minutes=5), None])
    def test_tells_the_strategy_what_it_needs(self, first: datetime | None) -> None:
        """A first attempt began now."""
        strategy = Asked()
        final(Retry(error=ERROR), strategy, first_attempt_at=first, attempts_count=4)
        expected = {"last_attempt_at": NOW, "attempts_count": 4, "exception": ERROR}
        assert strategy.question == expected | {"first_attempt_at": first or NOW}

    def test_that_does_not_count_is_not_given_up_for_the_number_of_attempts(self) -> None:
        strategy = ConstantRetry(delay_seconds=3, max_attempts=2)
        assert final(Retry(counts=False), strategy, attempts_count=2) == Retry(3.0, None, counts=False)


class TestUndecided:
    @each(
        ("policy", "expected"),
        [("retry", Retry(3.0)), ("release", Release(counts=True)), ("done", DONE), ("dead", Dead("undecided"))],
    )
    def test_is_what_the_policy_says(self, policy: OnUndecided, expected: FinalOutcome) -> None:
        assert final(Undecided(), on_undecided=policy) == expected

    def test_retry_is_dead_when_the_strategy_gives_up(self) -> None:
        assert final(Undecided(), NoRetry()) == Dead("retry_terminal")
        error = ValueError()
        assert final(Undecided(error), NoRetry()) == Dead("retry_terminal", error)
        assert final(Undecided(error), on_undecided="dead") == Dead("undecided", error)
