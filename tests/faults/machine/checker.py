"""The checker: proves from a history and from what the servers hold that the promises were kept, or names what broke.

Pure: `test_checker` shows with made-up histories that each kind of wrong is seen, and that a good one passes.
"""

from collections.abc import Iterable

from tests.faults.machine.checks import (
    atomic,
    effects,
    ends,
    kept,
    leases,
    letters,
    order,
    revived,
    sought,
    timers,
    whole,
)
from tests.faults.machine.facts import Facts
from tests.faults.machine.history import Event
from tests.faults.machine.runs import Story, tell
from tests.faults.machine.wrong import Wrong

CHECKS = (atomic, kept, leases, order, effects, timers, letters, sought, revived, ends, whole)


def check(events: Iterable[Event] | Story, facts: Facts) -> list[Wrong]:
    """Every broken promise; nothing if all were kept."""
    story = events if isinstance(events, Story) else tell(events)
    return [found for promise in CHECKS for found in promise.check(story, facts)]
