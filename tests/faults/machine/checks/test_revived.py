"""Dead letters that were replayed, with made-up histories: each that is not right is named for one reason."""

import json

import pytest

from tests.faults.machine.checker import check
from tests.faults.machine.facts import Arrival, Business, Effect, Facts, Letter
from tests.faults.machine.history import NANO, Event
from tests.faults.machine.stage import REVIVED

BODY = json.dumps({"id": "r"})
LETTER = Letter("r", REVIVED, BODY, "r", "retry_terminal", "run.Poison", "poison r", "Traceback: Poison")
EFFECT = Effect(1, REVIVED, "r", None, None)


def lives(*outcomes: str) -> list[Event]:
    """A run for each outcome; a death ends a life, and the attempts are counted anew."""
    found: list[Event] = []
    attempt = 1
    for number, outcome in enumerate(outcomes):
        data = {"run": number, "id": "r", "place": REVIVED, "key": None, "version": None, "attempt": attempt}
        found.append(Event((2 * number) * NANO, 1, "revived_worker", "started", data))
        ended = {"run": number, "place": REVIVED, "outcome": outcome}
        found.append(Event((2 * number + 1) * NANO, 1, "revived_worker", "finished", ended))
        attempt = 1 if outcome == "dead" else attempt + 1
    return found


def facts(times: int, *, is_dead: bool = False, has_effect: bool = False, place: str = REVIVED) -> Facts:
    return Facts(
        business=[Business("r", place, poison=True, body=BODY)],
        arrivals=[Arrival("r", place, times)],
        letters=[LETTER] if is_dead else [],
        effects=[EFFECT] if has_effect else [],
        places=frozenset({REVIVED}),
    )


@pytest.mark.parametrize(
    ("events", "held"),
    [
        pytest.param(lives("retry", "dead"), facts(1, is_dead=True), id="died"),
        pytest.param(lives("dead", "retry", "done"), facts(2, has_effect=True), id="replayed, and worked"),
        pytest.param(lives("dead", "dead"), facts(2, is_dead=True), id="replayed, and died again"),
        pytest.param(lives("dead", "dead", "done"), facts(3, has_effect=True), id="replayed twice"),
    ],
)
def test_good_history_passes(events: list[Event], held: Facts) -> None:
    assert check(events, held) == []


@pytest.mark.parametrize(
    ("events", "held", "kind"),
    [
        pytest.param(lives("dead", "done"), facts(2), "lost", id="replayed, and gone without an end"),
        pytest.param(lives("dead"), facts(2, has_effect=True), "lost", id="replayed, and not begun again"),
        pytest.param(
            lives("dead", "dead", "done"),
            facts(2, is_dead=True, has_effect=True),
            "effect and dead",
            id="replayed, and its letter stayed",
        ),
        pytest.param(
            lives("retry", "done", "done"), facts(2, has_effect=True), "published twice", id="back without a death"
        ),
    ],
)
def test_wrong_is_named(events: list[Event], held: Facts, kind: str) -> None:
    assert [(wrong.kind, wrong.message) for wrong in check(events, held)] == [(kind, "r")]
