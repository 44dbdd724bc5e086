"""Atomic publish: a message exists if and only if its transaction committed. Pure; called by `checker`."""

from collections import Counter
from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.history import COMMITTED, ROLLED_BACK
from tests.faults.machine.runs import Story
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Compare what producers were told, the business rows, and the messages that ever existed."""
    business = {row.id: row for row in facts.business}
    arrived = Counter((row.id, row.place) for row in facts.arrivals)
    for message, (said, event) in story.told.items():
        if said == COMMITTED and message not in business:
            yield wrong("commit lost", message, "its COMMIT was answered, and its business row is gone", [event])
        if said == ROLLED_BACK and message in business:
            yield wrong("rollback kept", message, "its transaction was rolled back, and its row exists", [event])
    for message, row in business.items():
        times = arrived[message, row.place]
        if times == 0:
            yield wrong(
                "not published", message, f"business row for {row.place}, and no message", story.of_message(message)
            )
        elif times > 1:
            yield wrong("published twice", message, f"{times} messages in {row.place}", story.of_message(message))
    for message, place in arrived:
        if message not in business:
            yield wrong("ghost", message, f"a message in {place} without a business row", story.of_message(message))
