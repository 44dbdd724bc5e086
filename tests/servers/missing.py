"""What to do about a part that is not installed: skip the test, or fail it where all parts are required.

`tests.bare` runs whatever starts programs without any of them, and wants a command in every reason.
"""

import os
from typing import NoReturn

import pytest

REQUIRE = "OUTBOX_TEST_REQUIRE"


def missing(what: str, *, is_optional: bool = False) -> NoReturn:
    """Skip with a line that says what to install; with `OUTBOX_TEST_REQUIRE=1` that is a failure.

    What is optional is skipped in any case: not every system that has all other parts can have it.
    """
    if os.environ.get(REQUIRE) == "1" and not is_optional:
        pytest.fail(f"{what} ({REQUIRE}=1 wants all parts)", pytrace=False)
    pytest.skip(what)
