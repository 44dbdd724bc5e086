"""Dead letters that were replayed: they come back under their own number, are handled again, and end once.

That they end at all is seen by `kept`, that they end once by `effects`: a letter that is still there beside the message
that came back would show as an effect and a death, or as two deaths. Pure; called by `checker`.
"""

from collections.abc import Iterator

from tests.faults.machine.facts import Facts
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import REVIVED
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Compare how often each message came with how often it was begun and how often it died."""
    buried = {letter.id for letter in facts.letters}
    for row in facts.arrivals:
        if row.times == 1:
            continue
        runs = [run for run in story.by_message.get(row.id, ()) if run.place == row.place]
        lives = sum(run.attempt == 1 for run in runs)
        deaths = sum(run.outcome == "dead" for run in runs)
        died = row.times - 1 + (row.id in buried)
        if row.place != REVIVED or deaths < died:
            detail = f"came {row.times} times to {row.place}, and died {deaths} times"
            yield wrong("published twice", row.id, detail, story.of_message(row.id))
        elif lives < row.times:
            detail = f"came {row.times} times to {row.place}, and was begun anew {lives} times"
            yield wrong("lost", row.id, detail, story.of_message(row.id))
