"""The page of workers lists every option of a worker and of a client with its default."""

import inspect
from dataclasses import fields
from typing import Any

from faststream_outbox import queue
from faststream_outbox.queue import OutboxClient, WorkerOptions
from tests.docs.pages import names, rows

PAGE = "docs/workers.md"


def printed(heading: str) -> dict[str, Any]:
    """Names of options and their defaults, read as Python."""
    return {names(name)[0]: eval(names(default)[0], dict(vars(queue))) for name, default, _ in rows(PAGE, heading)}


def test_page_lists_every_option_of_a_worker_with_its_default() -> None:
    defaults = WorkerOptions()
    assert printed("## Options") == {field.name: getattr(defaults, field.name) for field in fields(WorkerOptions)}


def test_page_lists_every_option_of_a_client_with_its_default() -> None:
    parameters = inspect.signature(OutboxClient).parameters.values()
    in_code = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    in_code["log"] = "faststream_outbox"
    assert printed("## The client") == in_code
