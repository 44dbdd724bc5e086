"""Dead letters are complete, and only poison dies. Pure; called by `checker`."""

import json
from collections.abc import Iterator

from tests.faults.machine.facts import Facts, Letter
from tests.faults.machine.runs import Story
from tests.faults.machine.stage import BULK
from tests.faults.machine.wrong import Wrong, wrong


def check(story: Story, facts: Facts) -> Iterator[Wrong]:
    """Compare each dead letter, and each parked message, with what was published."""
    business = {row.id: row for row in facts.business}
    for letter in facts.letters:
        row = business.get(letter.id)
        if row is None:
            # A ghost; said elsewhere.
            continue
        missing = list(_missing(letter, row.body))
        if missing:
            detail = f"in {letter.place} without its {', '.join(missing)}"
            yield wrong("dead letter incomplete", letter.id, detail, story.of_message(letter.id))
        if not row.poison:
            detail = f"in {letter.place}: {letter.reason}, {letter.error_type}: {letter.error_message}"
            yield wrong("healthy message died", letter.id, detail, story.of_message(letter.id))


def _missing(letter: Letter, body: str) -> Iterator[str]:
    try:
        is_same = json.loads(letter.body) == json.loads(body)
    except ValueError:
        is_same = False
    if not is_same:
        yield "body"
    if letter.mark != letter.id:
        yield "headers"
    if not letter.reason:
        yield "reason"
    if letter.place == BULK:
        # Rejected by its handler, which raised nothing.
        return
    if not (letter.error_type or "").endswith("Poison"):
        yield "error type"
    if letter.id not in (letter.error_message or ""):
        yield "error message"
    if "Poison" not in (letter.traceback or ""):
        yield "traceback"
