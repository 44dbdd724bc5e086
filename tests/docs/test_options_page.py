"""The page of options lists every option with its default, with FastStream and without."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from faststream_outbox import OutboxBroker, queue
from faststream_outbox.queue import OutboxClient, WorkerOptions
from tests.docs.pages import names, rows, text_of

PAGE = "docs/options.md"


def printed(heading: str) -> dict[str, Any]:
    """Names of options and their defaults, read as Python."""
    return {names(name)[0]: eval(names(default)[0], dict(vars(queue))) for name, default, _ in rows(PAGE, heading)}


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
