"""The page on subscribing lists every option of a subscriber and of a broker with its default."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from faststream_outbox import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry, OutboxBroker
from faststream_outbox.outcomes.retry import DEFAULT_RETRY
from tests.docs.pages import names, rows, text_of

PAGE = "docs/subscriber.md"
ON_RETRIES = text_of(PAGE).split("| `NoRetry()` |", 1)[1].split("```", 1)[0]


def of_faststream(heading: str) -> set[str]:
    """Names of options that the section only mentions."""
    section = text_of(PAGE).split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    return set(names(section.split("FastStream's own:", 1)[1].split(".\n", 1)[0]))


@pytest.mark.parametrize(
    ("heading", "call"),
    [
        pytest.param("## Options", OutboxBroker.subscriber, id="subscriber"),
        pytest.param("## The broker", OutboxBroker.__init__, id="broker"),
    ],
)
def test_page_lists_every_option_with_its_default(heading: str, call: Callable[..., Any]) -> None:
    printed = {names(name)[0]: eval(names(default)[0]) for name, default, _ in rows(PAGE, heading)}
    parameters = inspect.signature(call).parameters.values()
    in_code = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    mentioned = of_faststream(heading) | {"outbox_table", "dlq_table"}
    assert printed == {name: default for name, default in in_code.items() if name not in mentioned}
    assert mentioned - {"outbox_table", "dlq_table"} <= set(in_code)


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
