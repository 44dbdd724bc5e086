"""Exactly-once effects, of transactional handlers and through the inbox. Pure; called by `checker`."""

from collections import Counter
from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import OF_SOUGHT_GROUP
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Count effects by place and message, and what handlers published with them."""
    # A group that is sought sees messages again: `sought` knows when.
    times = Counter((effect.place, effect.id) for effect in facts.effects if effect.place != OF_SOUGHT_GROUP)
    for (place, message), count in times.items():
        if count > 1:
            yield wrong("effect doubled", message, f"{count} effects in {place}", story.of_message(message))
    dead = {(letter.place, letter.id) for letter in facts.letters}
    for place, message in times.keys() & dead:
        yield wrong("effect and dead", message, f"an effect in {place}, and a dead letter", story.of_message(message))
    letters = Counter((letter.place, letter.id) for letter in facts.letters)
    for (place, message), count in letters.items():
        if count > 1:
            yield wrong("dead twice", message, f"{count} dead letters of {place}", story.of_message(message))
    parents = Counter(row.parent for row in facts.business if row.parent is not None)
    known = {message for place, message in times if place == "exact"}
    for parent, count in parents.items():
        if count > 1:
            yield wrong("effect doubled", parent, f"its handler published {count} messages", story.of_message(parent))
        if parent not in known:
            yield wrong("effect torn", parent, "its handler's message exists, its effect does not")
