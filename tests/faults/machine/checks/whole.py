"""The machine itself did its work: where a part of it failed, what was found is not the whole.

A strike that the servers did not let strike is no fault: it is counted in the report. Pure; called by `checker`.
"""

from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.history import FAILED
from tests.faults.machine.runs import Story
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, _: Facts) -> Iterator[Wrong]:
    """Look for failures of the machine's own."""
    for event in story.events:
        if event.kind == FAILED:
            yield wrong("not judged", event.data["what"], event.data["error"], [event])
