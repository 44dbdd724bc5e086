"""Timers are not early, and neither is a retry. Pure; called by `checker`."""

from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.runs import Story
from tests.faults.machine.wrong import Wrong, wrong

CLOCK_ERROR = 0.02
"""Seconds that two readings of the clocks may differ."""


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Compare the beginning of runs and claims with the due times, by the server's clock."""
    due = {row.id: row.due for row in facts.business if row.due is not None}
    for run in story.runs:
        wanted = due.get(run.id)
        if wanted is None:
            continue
        early = wanted - (run.start.seconds + facts.offset)
        if early > CLOCK_ERROR:
            yield wrong("timer early", run.id, f"began {early:.3f} s before it was due", run.events)
    for change in facts.leases:
        is_claim = change.new_token is not None and change.new_token != change.old_token
        if is_claim and change.new_at is not None and change.new_at < change.due:
            detail = f"claimed {change.due - change.new_at:.3f} s before it was due"
            yield wrong("timer early", change.id, detail, story.of_message(change.id))
