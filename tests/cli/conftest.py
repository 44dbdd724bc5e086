"""The stage of the command line's tests."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine

from faststream_outbox._internal.cli import asking
from tests.cli.stage import Stage
from tests.tables import all_existing


@pytest.fixture
def stage(database_url: URL, builder: Engine) -> Iterator[Stage]:
    made = Stage(database_url, builder)
    with all_existing(made.tables, builder):
        yield made


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits there who can be asked."""
    monkeypatch.setattr(asking, "can_ask", lambda: True)
    monkeypatch.setattr(asking, "wait_for_answer", lambda: None)
