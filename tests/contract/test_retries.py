"""Retry strategies: the default, the schedule, the limits, jitter, and strategies of one's own."""

import datetime as dt
import random
from typing import Any

import pytest

from faststream_outbox import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry, OutboxBroker
from faststream_outbox._internal.outcomes.retry import _RetryStrategyTemplate
from tests.contract.outside import App
from tests.contract.running import run
from tests.waiting import eventually

RETRYING = """\
from faststream_outbox import ExponentialRetry, ConstantRetry, LinearRetry, NoRetry

@broker.subscriber(
    "orders",
    retry_strategy=ExponentialRetry(
        initial_delay_seconds=1.0,
        max_delay_seconds=300.0,
        max_attempts=5,
        jitter_factor=0.5,
    ),
)
async def handle(order_id: int) -> None: ...
"""

OPTING_OUT = """\
from faststream_outbox import ExponentialRetry, ConstantRetry, LinearRetry, NoRetry


@broker.subscriber(
    "orders",
    retry_strategy=ExponentialRetry(
        initial_delay_seconds=1.0,
        max_delay_seconds=300.0,
        max_attempts=5,
        jitter_factor=0.5,
    ),
)
async def handle(order_id: int) -> None: ...


@broker.subscriber("audit", retry_strategy=NoRetry())  # opt out of retries
async def handle_audit(payload: dict) -> None: ...
"""

TRANSIENT_ONLY = """\
class TransientOnly(ExponentialRetry):
    def get_next_attempt_at(self, *, exception=None, **kw):
        if exception and not isinstance(exception, TransientError):
            return None
        return super().get_next_attempt_at(exception=exception, **kw)
"""

TRANSIENT_ONLY_COMMENTED = """\
class TransientOnly(ExponentialRetry):
    def get_next_attempt_at(self, *, exception=None, **kw):
        if exception and not isinstance(exception, TransientError):
            return None  # terminal — DELETE
        return super().get_next_attempt_at(exception=exception, **kw)
"""

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class TransientError(Exception):
    pass


def delay(strategy: Any, attempts_count: int = 1, spent: float = 0.0) -> float | None:
    """Seconds until the next attempt, after so many attempts."""
    at = strategy.get_next_attempt_at(
        first_attempt_at=NOW - dt.timedelta(seconds=spent),
        last_attempt_at=NOW,
        attempts_count=attempts_count,
        exception=ValueError(),
    )
    return None if at is None else float((at - NOW).total_seconds())


async def with_failing_handler(snippet: str, broker: OutboxBroker, error: Exception) -> None:
    """Run the snippet with handlers that raise, where the printed ones do nothing."""
    failing = snippet.replace("None: ...", "None: raise error")
    await run(failing, {"broker": broker, "error": error})
    await broker.start()


async def test_snippet_handles(app: App) -> None:
    await run(RETRYING, {"broker": app.broker})
    await app.finishes(1)


async def test_snippet_schedules_another_attempt_after_a_failure(app: App) -> None:
    await with_failing_handler(RETRYING, app.broker, ValueError("out of stock"))
    await app.publish(1)
    # As it was then: on a slow machine the next attempt is there before anybody looks again.
    row = await eventually(lambda: (row := app.row())["attempts_count"] == 1 and row)
    await app.broker.stop()
    assert row["acquired_token"] is None
    # One second, and a quarter more or less.
    assert 0.7 < (row["next_attempt_at"] - row["last_attempt_at"]).total_seconds() < 1.3


async def test_snippet_gives_up_at_the_fifth_failure(app: App) -> None:
    app.put(attempts_count=4, deliveries_count=4)
    await with_failing_handler(RETRYING, app.broker, ValueError("out of stock"))
    await eventually(app.is_empty)


async def test_no_retry_deletes_at_the_first_failure(app: App) -> None:
    await with_failing_handler(OPTING_OUT, app.broker, ValueError("out of stock"))
    await app.publish({"a": 1}, queue="audit")
    await eventually(app.is_empty)


def test_the_default_strategy(unconnected: OutboxBroker) -> None:
    subscriber = unconnected.subscriber("orders")
    assert subscriber.options.retry_strategy == ExponentialRetry(
        initial_delay_seconds=1.0, multiplier=2.0, max_delay_seconds=300.0, max_attempts=10, jitter_factor=0.2
    )


async def test_a_failure_is_not_the_end_by_default(app: App) -> None:
    app.collects(error=ValueError())
    await app.broker.start()
    await app.publish(1)
    await eventually(lambda: app.row()["attempts_count"] == 1)
    assert app.row()["next_attempt_at"] > app.row()["last_attempt_at"]


async def test_a_failed_message_is_delivered_again(app: App) -> None:
    attempts = 0

    @app.broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.01))
    async def handle(order_id: int) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ValueError(order_id)

    await app.finishes(1)
    assert attempts == 3


def test_exponential_delays_double_up_to_the_cap() -> None:
    strategy = ExponentialRetry(initial_delay_seconds=1.0, max_delay_seconds=5.0)
    assert [delay(strategy, count) for count in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_constant_and_linear_have_no_jitter_by_default() -> None:
    constant = ConstantRetry(delay_seconds=2.0)
    linear = LinearRetry(initial_delay_seconds=1.0, step_seconds=2.0)
    assert (constant.jitter_factor, linear.jitter_factor) == (0.0, 0.0)
    assert [delay(constant, count) for count in (1, 2, 3)] == [2.0, 2.0, 2.0]
    assert [delay(linear, count) for count in (1, 2, 3)] == [1.0, 3.0, 5.0]


@pytest.mark.parametrize(
    "strategy",
    [
        ConstantRetry(delay_seconds=10.0, jitter_factor=0.4),
        LinearRetry(initial_delay_seconds=10.0, step_seconds=1.0, jitter_factor=0.4),
        ExponentialRetry(initial_delay_seconds=10.0, jitter_factor=0.4),
    ],
    ids=["constant", "linear", "exponential"],
)
def test_jitter_multiplies_by_one_and_up_to_half_the_factor_either_way(
    strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def drawn(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.15

    monkeypatch.setattr(random, "uniform", drawn)
    assert delay(strategy) == pytest.approx(10.0 * 1.15)
    assert asked == [(-0.2, 0.2)]


@pytest.mark.parametrize("snippet", [TRANSIENT_ONLY, TRANSIENT_ONLY_COMMENTED], ids=["plain", "commented"])
@pytest.mark.parametrize(("error", "is_kept"), [(TransientError(), True), (ValueError(), False)])
async def test_a_subclass_may_retry_only_transient_errors(
    app: App, snippet: str, error: Exception, *, is_kept: bool
) -> None:
    known = await run(snippet, {"ExponentialRetry": ExponentialRetry, "TransientError": TransientError})
    bodies = app.collects(error=error, retry_strategy=known["TransientOnly"](initial_delay_seconds=60.0))
    await app.broker.start()
    await app.publish(1)
    await eventually(lambda: bodies)
    await app.broker.stop()
    assert [row["attempts_count"] for row in app.rows()] == ([1] if is_kept else [])


class Listening(ExponentialRetry):
    """Remembers what it was asked."""

    heard: list[Any] = []

    def get_next_attempt_at(self, **asked: Any) -> dt.datetime | None:
        self.heard.append(asked)
        return None


async def test_a_strategy_is_given_the_exception(app: App) -> None:
    error = ValueError("out of stock")
    strategy = Listening(initial_delay_seconds=1.0)
    strategy.heard.clear()
    app.collects(error=error, retry_strategy=strategy)
    await app.finishes(1)
    assert [asked["exception"] for asked in strategy.heard] == [error]


class EveryMinute(_RetryStrategyTemplate):
    def _scheduled_seconds(self, earlier_failures: float) -> float:
        return 60.0


def test_the_template_enforces_max_attempts() -> None:
    strategy = EveryMinute(max_attempts=3)
    assert [delay(strategy, count) for count in (1, 2, 3)] == [60.0, 60.0, None]


def test_the_template_enforces_the_total_delay() -> None:
    strategy = EveryMinute(max_total_delay_seconds=100.0)
    assert [delay(strategy, 2, spent) for spent in (0.0, 40.0, 41.0)] == [60.0, 60.0, None]


def test_no_retry_never_schedules() -> None:
    assert delay(NoRetry()) is None
