"""A lane knows where to start the next look, and when one is due."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from operator import methodcaller as call

import pytest

from faststream_outbox._internal.queue.lanes import AFTER_ALL_IDS, BEFORE_ALL_IDS, BEGINNING, GRACE, NEVER, Lane
from tests.cases import each

SERVER_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST = (datetime(2026, 3, 1, 11, tzinfo=UTC), 42)
BEFORE_THE_CALENDAR = (datetime(2, 1, 1, tzinfo=UTC), 42)
FIRST = (BEGINNING, BEFORE_ALL_IDS)
FLOOR = (SERVER_NOW, AFTER_ALL_IDS)
BELOW = (SERVER_NOW - timedelta(seconds=GRACE), BEFORE_ALL_IDS)
"""Where to look for what became visible since a look at `SERVER_NOW`."""
LOWERED = (LAST[0], LAST[1] - 1)

Steps = Sequence[Callable[[Lane], object]]
FOUND_NOTHING = call("scanned", None, SERVER_NOW, full=False)
START, LOOK = call("start"), (call("start"), FOUND_NOTHING)
FULL = (call("start"), call("scanned", LAST, SERVER_NOW, full=True))


def looking() -> Lane:
    """A lane whose first look is under way."""
    lane = Lane("orders", 0, False)
    lane.start()
    return lane


def dry() -> Lane:
    """A lane that was looked at and had nothing, at time 100."""
    return after(LOOK, looking())


def after(steps: Steps, lane: Lane) -> Lane:
    for step in steps:
        step(lane)
    return lane


@pytest.fixture
def lane() -> Lane:
    return looking()


@each(
    ("what", "lane", "steps", "may_have_work", "start"),
    [
        ("the first look starts at the beginning", looking, [], True, FIRST),
        ("a full scan moves the floor to the last row seen", looking, FULL, True, LAST),
        (
            "a short look moves it to its time",
            looking,
            [START, call("scanned", LAST, SERVER_NOW, full=False)],
            False,
            FLOOR,
        ),
        ("a short look leaves the lane dry", dry, [], False, FLOOR),
        ("the floor can be lowered to just below a message", dry, [call("lower", *LAST)], True, LOWERED),
        ("a look under way does not undo that", looking, [call("lower", *LAST), FOUND_NOTHING], True, LOWERED),
        ("below the calendar is the beginning", dry, [call("lower", *BEFORE_THE_CALENDAR)], True, FIRST),
        (
            "a row from before the calendar leaves it at the beginning",
            *(looking, [START, call("scanned", BEFORE_THE_CALENDAR, SERVER_NOW, full=True)], True, FIRST),
        ),
        (
            "it is never below the lowest id",
            *(dry, [call("lower", SERVER_NOW, BEFORE_ALL_IDS)], True, (SERVER_NOW, BEFORE_ALL_IDS)),
        ),
        ("a hint has looked at what appeared since the last look", dry, [call("hint", 200.0)], True, BELOW),
        ("it does not matter how long ago that look was", dry, [call("hint", 90_000.0)], True, BELOW),
        (
            "only a look that also looked below the floor has seen everything that was there by then",
            dry,
            [
                *(call("note_due", 150.0), call("awaken", 150.0), START),
                call("scanned", None, SERVER_NOW + timedelta(seconds=50), full=False),
                call("hint", 200.0),
            ],
            *(True, BELOW),
        ),
        ("a floor in an old backlog stays where it is", looking, [*FULL, call("hint", 200.0)], True, LAST),
        ("one hint is good for one rewind", dry, [call("hint", 200.0), START], True, FLOOR),
        ("a look may be followed at once by another", dry, [call("hint", 100.0)], True, BELOW),
        (
            "a hint that came during a look is kept for the next",
            *(looking, [START, call("hint", 100.0), FOUND_NOTHING], True, BELOW),
        ),
        (
            "a look that failed is made again as far below",
            *(dry, [call("hint", 200.0), START, call("interrupted")], True, BELOW),
        ),
    ],
)
def test_next_look(
    what: str, lane: Callable[[], Lane], steps: Steps, may_have_work: bool, start: tuple[datetime | None, int]
) -> None:
    looked = after(steps, lane())
    assert (looked.may_have_work, looked.start()) == (may_have_work, start)


class TestDue:
    @each(
        ("what", "steps", "due_at"),
        [
            ("a dry lane has no reason to wake up", [], NEVER),
            ("the earliest counts", [call("note_due", moment) for moment in (300.0, 200.0, 250.0)], 200.0),
            ("it wakes once", [call("note_due", 200.0), call("awaken", 200.0)], NEVER),
        ],
    )
    def test_time_is_the_earliest_that_was_told(self, what: str, steps: Steps, due_at: float) -> None:
        assert after(steps, dry()).due_at == due_at

    @each(("now", "expected"), [(199.999, False), (200.0, True)])
    def test_the_lane_may_have_work_from_that_time_on(self, now: float, expected: bool) -> None:
        assert after([call("note_due", 200.0), call("awaken", now)], dry()).may_have_work is expected

    @each("steps", [[call("note_due", 200.0), call("awaken", 200.0)], [call("hint", 200.0, is_precise=False)]])
    def test_after_it_and_after_a_hint_that_knows_little_the_next_one_is_unknown(self, steps: Steps) -> None:
        lane = dry()
        lane.is_due_known = True
        assert not after(steps, lane).is_due_known

    def test_a_look_before_that_time_does_not_forget_it(self, lane: Lane) -> None:
        lane.is_due_known = True
        after([call("note_due", 200.0), *LOOK], lane)
        assert lane.due_at == 200.0 or not lane.is_due_known


class TestFailure:
    @each(("quota", "alone", "most"), [(10, False, 5), (1, True, 1)])
    def test_halves_what_is_asked_for_but_asks_for_one(self, quota: int, alone: bool, most: int) -> None:
        assert after([call("failed", quota, 100.0, alone=alone)], looking()).most == most

    def test_with_others_is_tried_alone_at_once(self, lane: Lane) -> None:
        lane.failed(10, 100.0, alone=False)
        assert lane.retry_at == 100.0

    def test_alone_is_tried_again_after_growing_pauses(self, lane: Lane) -> None:
        pauses = []
        for _ in range(4):
            lane.failed(1, 100.0, alone=True)
            pauses.append(lane.retry_at - 100.0)
        assert pauses == sorted(set(pauses))

    @each(("quickly", "most"), [(True, 10), (False, 5)])
    def test_is_over_after_a_claim_that_worked_and_remembered_if_that_took_long(self, quickly: bool, most: int) -> None:
        lane = after([call("failed", 10, 100.0, alone=True), call("worked", quickly=quickly)], looking())
        assert (lane.failures, lane.most) == (0, most)


FOR_ALL = call("hint", 102.0, is_named=False)


@each(
    ("what", "lane", "steps", "known"),
    [
        ("begins without", lambda: Lane("orders", 0, False), [], (True, False)),
        ("does not come with a hint for all", dry, [FOR_ALL], (True, False)),
        ("comes with a hint that names it", dry, [FOR_ALL, call("hint", 101.0)], (True, True)),
        ("is not taken away by a hint for all", dry, [call("hint", 101.0), FOR_ALL], (True, True)),
        ("comes with a full page", looking, [call("scanned", LAST, SERVER_NOW, full=True)], (True, True)),
        ("comes with a time that has come", dry, [call("note_due", 150.0), call("awaken", 150.0)], (True, True)),
        ("comes with a floor that is lowered", dry, [call("lower", *LAST)], (True, True)),
        ("ends with a scan that found the end", dry, [call("hint", 101.0), *LOOK], (False, False)),
        (
            "stays when the hint came during the scan",
            *(dry, [call("hint", 101.0), START, call("hint", 102.0), FOUND_NOTHING], (True, True)),
        ),
        (
            "is not left over when a hint for all came during the scan",
            *(dry, [call("hint", 101.0), START, FOR_ALL, FOUND_NOTHING], (True, False)),
        ),
    ],
)
def test_whether_something_is_known_of_a_lane_or_it_was_only_meant_together_with_all_others(
    what: str, lane: Callable[[], Lane], steps: Steps, known: tuple[bool, bool]
) -> None:
    looked = after(steps, lane())
    assert (looked.may_have_work, looked.has_work) == known


def test_a_look_that_found_something_lets_the_claim_start_where_the_look_did() -> None:
    lane = after([FOR_ALL], dry())
    began = lane.start()
    lane.found()
    assert lane.has_work
    assert lane.start() == began == BELOW
