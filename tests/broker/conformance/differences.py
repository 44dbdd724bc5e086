"""Where the double differs from PostgreSQL, in the words of docs/testing.md.

A scenario that shows a difference is marked with it: `@differs(AGAIN)`. It must then fail in the ways
that the difference is about, so that a difference that is gone does not stay in the documentation.
"""

from dataclasses import dataclass
from typing import Any

import pytest

POSTGRES = "postgres"
MEMORY = "memory"
LOOPS = "memory with loops"


@dataclass(frozen=True)
class Difference:
    """One line of the documentation, and the ways that it is about."""

    said: str
    ways: tuple[str, ...] = (MEMORY,)


AT_ONCE = Difference("A message is handled when it is published, and not after the commit of a real session.")
DUE = Difference("Due times are not waited for.")
AGAIN = Difference("Nothing comes again: a failed message stays in `fake_client.rows`, and its key waits.")
LATE_GROUP = Difference("A group reads what is published while its subscriber runs, and nothing from before.")
NOT_WRITTEN = Difference("What a transactional handler writes to its session is not written anywhere.", (MEMORY, LOOPS))
ANSWERED = Difference("`broker.request` is answered.", (MEMORY, LOOPS))
ALL_DIFFERENCES = {name: value for name, value in list(globals().items()) if isinstance(value, Difference)}


def differs(difference: Difference) -> Any:
    """Marks a scenario that fails in the ways of the difference."""
    return pytest.mark.differs(difference)
