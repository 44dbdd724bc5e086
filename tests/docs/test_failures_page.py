"""The page on failures prints the retry strategies as the code has them."""

import inspect

from faststream_outbox import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY
from tests.docs.pages import names, rows, text_of

PAGE = "docs/failures.md"
ON_RETRIES = text_of(PAGE).split("| `NoRetry()` |", 1)[1].split("```", 1)[0]


def test_page_prints_the_strategy_of_a_subscriber_that_has_none() -> None:
    (printed,) = (code for code in names(ON_RETRIES) if code.startswith("ExponentialRetry(") and "=10" in code)
    assert eval(printed) == DEFAULT_RETRY


def test_page_prints_the_defaults_of_a_strategy_of_ones_own() -> None:
    cells = {names(strategy)[0] for strategy, _ in rows(PAGE, "## Retries")}
    given = {"initial_delay_seconds", "step_seconds", "delay_seconds"}
    shared = {"max_attempts": None, "max_total_delay_seconds": None, "jitter_factor": 0.0}
    for strategy in (ExponentialRetry, LinearRetry, ConstantRetry, NoRetry):
        parameters = [each for each in inspect.signature(strategy).parameters.values() if not each.name.startswith("_")]
        own = [each for each in parameters if each.name not in shared]
        assert {each.name: each.default for each in parameters if each.name in shared} in ({}, shared)
        written = (f"{each.name}=…" if each.name in given else f"{each.name}={each.default!r}" for each in own)
        assert f"{strategy.__name__}({', '.join(written)})" in cells
    assert {f"{name}={default!r}" for name, default in shared.items()} <= set(names(ON_RETRIES))
