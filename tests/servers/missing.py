"""What to do about a part that is not installed: skip the test, or fail it where all parts are required."""

import os
from typing import NoReturn

import pytest

REQUIRE = "OUTBOX_TEST_REQUIRE"


def missing(what: str) -> NoReturn:
    """Skip with a line that says what to install; with `OUTBOX_TEST_REQUIRE=1` that is a failure."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{what} ({REQUIRE}=1 wants all parts)", pytrace=False)
    pytest.skip(what)
