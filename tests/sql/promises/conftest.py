"""What plans are asked for, and a log of a million messages."""

from collections.abc import Iterator
from typing import cast

import pytest
from sqlalchemy import URL

from tests.sql.million import Million, million_messages
from tests.sql.plans import MODES, PlanMode


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> PlanMode:
    """A plan for the values, or one for any."""
    return cast("PlanMode", request.param)


@pytest.fixture(scope="module")
def million(database_url: URL) -> Iterator[Million]:
    with million_messages(database_url) as million:
        yield million
