"""The pages list every option with its default, with FastStream and without, and the retry strategies as they are."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from faststream_outbox import ConstantRetry, ExponentialRetry, LinearRetry, NoRetry, OutboxBroker, queue
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY
from faststream_outbox.log import Outbox
from faststream_outbox.queue import OutboxClient, WorkerOptions
from tests.docs.pages import names, rows, text_of

PAGE, LOG_PAGE, TOPICS_PAGE, FAILURES_PAGE = (
    "docs/options.md",
    "docs/ordered-log.md",
    "docs/topics.md",
    "docs/failures.md",
)
ON_RETRIES = text_of(FAILURES_PAGE).split("| `NoRetry()` |", 1)[1].split("```", 1)[0]


def printed(heading: str, page: str = PAGE) -> dict[str, Any]:
    """Names of options and their defaults, read as Python."""
    return {names(name)[0]: eval(names(default)[0], dict(vars(queue))) for name, default, _ in rows(page, heading)}


def keywords(call: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def section(heading: str) -> str:
    return text_of(PAGE).split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]


def of_faststream(heading: str) -> set[str]:
    """Names of options that the section only mentions."""
    return set(names(section(heading).split("FastStream's own:", 1)[1].split(".\n", 1)[0]))


@pytest.mark.parametrize(
    ("heading", "call"),
    [
        pytest.param("## A subscriber", OutboxBroker.subscriber, id="subscriber"),
        pytest.param("## The broker", OutboxBroker.__init__, id="broker"),
    ],
)
def test_page_lists_every_option_with_its_default(heading: str, call: Callable[..., Any]) -> None:
    in_code = keywords(call)
    mentioned = of_faststream(heading) | {"outbox_table", "dlq_table"}
    assert printed(heading) == {name: default for name, default in in_code.items() if name not in mentioned}
    assert mentioned - {"outbox_table", "dlq_table"} <= set(in_code)


def test_every_option_of_a_subscriber_is_used() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(OutboxBroker.subscriber)))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert set(keywords(OutboxBroker.subscriber)) <= used


def test_a_worker_has_the_options_of_a_subscriber_but_for_what_the_page_says() -> None:
    defaults = WorkerOptions()
    in_code = {field.name: getattr(defaults, field.name) for field in fields(WorkerOptions)}
    of_subscribers, own = printed("## A subscriber"), printed("## A worker")
    lacking = set(names(section("## A worker").split("A worker has no", 1)[1]))
    assert {**of_subscribers, **own} == {**in_code, **{name: of_subscribers[name] for name in lacking}}
    assert lacking.isdisjoint(in_code)


def test_a_client_has_the_options_that_the_page_says() -> None:
    in_code = keywords(OutboxClient) | {"log": "faststream_outbox"}
    said = section("## The client").split("`dlq_table`.", 1)[1].split("are those of", 1)[0]
    of_brokers = {name: printed("## The broker")[name] for name in names(said)}
    assert {**of_brokers, **printed("## The client")} == in_code


def test_page_lists_every_option_of_the_log_with_its_default() -> None:
    in_code = {each.name: each.default for each in inspect.signature(Outbox).parameters.values()}
    del in_code["session_pool"]
    assert printed("## Options", LOG_PAGE) == in_code


def test_page_says_of_every_option_of_a_subscriber_what_it_means_for_a_topic() -> None:
    said = [name for row in rows(TOPICS_PAGE, "## Options") for name in names(row[0])]
    in_code = set(keywords(OutboxBroker.subscriber)) - of_faststream("## A subscriber")
    assert sorted(said) == sorted(in_code - {"topic", "group", "terminal_flush_batch_size"})


def test_page_prints_the_strategy_of_a_subscriber_that_has_none() -> None:
    (said,) = (code for code in names(ON_RETRIES) if code.startswith("ExponentialRetry(") and "=10" in code)
    assert eval(said) == DEFAULT_RETRY


def test_page_prints_the_defaults_of_a_strategy_of_ones_own() -> None:
    cells = {names(strategy)[0] for strategy, _ in rows(FAILURES_PAGE, "## Retries")}
    given = {"initial_delay_seconds", "step_seconds", "delay_seconds"}
    shared = {"max_attempts": None, "max_total_delay_seconds": None, "jitter_factor": 0.0}
    for strategy in (ExponentialRetry, LinearRetry, ConstantRetry, NoRetry):
        parameters = [each for each in inspect.signature(strategy).parameters.values() if not each.name.startswith("_")]
        own = [each for each in parameters if each.name not in shared]
        assert {each.name: each.default for each in parameters if each.name in shared} in ({}, shared)
        written = (f"{each.name}=…" if each.name in given else f"{each.name}={each.default!r}" for each in own)
        assert f"{strategy.__name__}({', '.join(written)})" in cells
    assert {f"{name}={default!r}" for name, default in shared.items()} <= set(names(ON_RETRIES))
