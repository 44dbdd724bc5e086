"""Nothing lost: what was committed is handled or a dead letter, in its queue, in each group, and at the far end.

Pure; called by `checker`.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.machine.facts import Business, Facts
from tests.faults.machine.history import STUCK
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import (
    EXACT,
    FACTS,
    INBOX,
    OF_EXACT_GROUP,
    OF_PLAIN_GROUP,
    OF_SOUGHT_GROUP,
    OUT_GROUP,
    OUTWARD,
    REVIVED,
)
from tests.faults.machine.wrong import Wrong, wrong

BY_EFFECT = (EXACT, REVIVED, OF_EXACT_GROUP, OF_SOUGHT_GROUP)
"""Places whose handlers leave an effect: what they said that they did may have been rolled back."""


def wanted(row: Business, *, has_nats: bool) -> list[str]:
    """Where a committed message must have been handled."""
    if row.place == FACTS:
        return [OF_PLAIN_GROUP, OF_EXACT_GROUP, *([f"{FACTS}/{OUT_GROUP}", f"{INBOX}/{FACTS}"] if has_nats else [])]
    if row.place == OUTWARD:
        return [f"{OUTWARD}/{OUT_GROUP}", f"{INBOX}/{OUTWARD}"] if has_nats else []
    return [row.place]


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Look for every committed message in every place that it should have come to."""
    places = facts.places
    handled: dict[str, set[str]] = defaultdict(set)
    for run in story.runs:
        if run.outcome == "done" and run.place not in BY_EFFECT:
            handled[run.place].add(run.id)
    for effect in facts.effects:
        handled[effect.place].add(effect.id)
    for sent in facts.sent or ():
        handled[sent.place].add(sent.id)
    for letter in facts.letters:
        handled[letter.place].add(letter.id)
    left = {(row.id, row.place) for row in facts.left}
    for row in facts.business:
        if (row.id, row.place) in left:
            continue
        for place in wanted(row, has_nats=facts.sent is not None):
            if (places is None or place in places) and row.id not in handled[place]:
                detail = f"committed to {row.place}, and neither handled in {place} nor a dead letter"
                yield wrong("lost", row.id, detail, story.of_message(row.id))
    committed = {row.id for row in facts.business}
    for place, ids in handled.items():
        for message in ids - committed:
            yield wrong("ghost", message, f"handled in {place}, and never committed", story.of_message(message))
    for row_left in facts.left:
        if places is None or row_left.place in places:
            yield wrong("left", row_left.id, f"still in {row_left.place}", story.of_message(row_left.id))
    for name in facts.deferred:
        yield wrong("left", name.split()[-1], f"still deferred by {name}", story.of_message(name.split()[-1]))
    for event in story.events:
        if event.kind == STUCK:
            yield wrong("stuck", str(event.data.get("what")), f"no progress: {event.data.get('left')} left", [event])
