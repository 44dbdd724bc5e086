"""The stage on which the roles act: made once, emptied for each test."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine

from tests.rights.stage import Stage


@pytest.fixture(scope="module")
def built(builder: Engine, database_url: URL) -> Iterator[Stage]:
    """Tables and roles, for the tests of one file."""
    stage = Stage(builder, database_url)
    stage.build()
    yield stage
    stage.clear()


@pytest.fixture
def stage(built: Stage) -> Iterator[Stage]:
    """The same, with empty tables."""
    yield built
    built.empty()
