"""The page on subscribing lists every option of a subscriber and of a broker with its default."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from faststream_outbox import OutboxBroker
from tests.docs.pages import names, rows, text_of

PAGE = "docs/subscriber.md"


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
    mentioned = of_faststream(heading) | {"outbox_table"}
    assert printed == {name: default for name, default in in_code.items() if name not in mentioned}
    assert mentioned - {"outbox_table"} <= set(in_code)
