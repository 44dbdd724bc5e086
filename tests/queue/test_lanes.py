"""A lane knows where to start the next look, and when one is due."""

from datetime import UTC, datetime, timedelta

import pytest

from faststream_outbox._internal.queue.lanes import AFTER_ALL_IDS, BEFORE_ALL_IDS, BEGINNING, GRACE, NEVER, Lane

SERVER_NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST = (datetime(2026, 3, 1, 11, tzinfo=UTC), 42)
FLOOR = (SERVER_NOW, AFTER_ALL_IDS)
BELOW = (SERVER_NOW - timedelta(seconds=GRACE), BEFORE_ALL_IDS)
"""Where to look for what became visible since a look at `SERVER_NOW`."""


def look(
    lane: Lane,
    *,
    last: tuple[datetime, int] | None = None,
    full: bool = False,
    server_now: datetime = SERVER_NOW,
) -> None:
    """Ask where to start, and come back."""
    lane.start()
    lane.scanned(last, server_now, full=full)


@pytest.fixture
def lane() -> Lane:
    """A lane whose first look is under way."""
    lane = Lane("orders", 0, False)
    lane.start()
    return lane


@pytest.fixture
def dry(lane: Lane) -> Lane:
    """A lane that was looked at and had nothing, at time 100."""
    look(lane)
    return lane


class TestFloor:
    def test_the_first_look_starts_at_the_beginning(self, lane: Lane) -> None:
        assert (lane.may_have_work, lane.floor_at, lane.floor_id) == (True, BEGINNING, BEFORE_ALL_IDS)

    def test_a_full_scan_moves_it_to_the_last_row_seen(self, lane: Lane) -> None:
        look(lane, last=LAST, full=True)
        assert (lane.floor_at, lane.floor_id) == LAST

    def test_a_full_scan_leaves_the_lane_with_work(self, lane: Lane) -> None:
        look(lane, last=LAST, full=True)
        assert lane.may_have_work

    def test_a_short_look_moves_it_to_the_time_of_the_look(self, lane: Lane) -> None:
        look(lane, last=LAST)
        assert (lane.floor_at, lane.floor_id) == (SERVER_NOW, AFTER_ALL_IDS)

    def test_a_short_look_leaves_the_lane_dry(self, dry: Lane) -> None:
        assert not dry.may_have_work

    def test_it_can_be_lowered_to_just_below_a_message(self, dry: Lane) -> None:
        dry.lower(*LAST)
        assert (dry.may_have_work, dry.start()) == (True, (LAST[0], LAST[1] - 1))

    def test_a_look_under_way_does_not_undo_the_lowering(self, lane: Lane) -> None:
        lane.lower(*LAST)
        lane.scanned(None, SERVER_NOW, full=False)
        assert (lane.may_have_work, lane.start()) == (True, (LAST[0], LAST[1] - 1))

    def test_below_the_calendar_is_the_beginning(self, dry: Lane) -> None:
        dry.lower(datetime(2, 1, 1, tzinfo=UTC), 42)
        assert dry.start() == (BEGINNING, BEFORE_ALL_IDS)

    def test_a_row_from_before_the_calendar_leaves_it_at_the_beginning(self, lane: Lane) -> None:
        look(lane, last=(datetime(2, 1, 1, tzinfo=UTC), 42), full=True)
        assert (lane.floor_at, lane.floor_id) == (BEGINNING, BEFORE_ALL_IDS)

    def test_it_is_never_below_the_lowest_id(self, dry: Lane) -> None:
        dry.lower(SERVER_NOW, BEFORE_ALL_IDS)
        assert dry.start() == (SERVER_NOW, BEFORE_ALL_IDS)


class TestRewind:
    def test_without_a_hint_nothing_below_the_floor_is_looked_at(self, dry: Lane) -> None:
        assert dry.start() == FLOOR

    def test_after_a_hint_what_may_have_appeared_since_the_last_look_is_looked_at(self, dry: Lane) -> None:
        dry.hint(200.0)
        assert dry.start() == BELOW

    def test_it_does_not_matter_how_long_ago_that_look_was(self, dry: Lane) -> None:
        dry.hint(90_000.0)
        assert dry.start() == BELOW

    def test_what_was_looked_at_without_a_rewind_may_have_been_passed_over(self, dry: Lane) -> None:
        """Only a look that also looked below the floor has seen everything that was there by then."""
        dry.note_due(150.0)
        dry.awaken(150.0)
        look(dry, server_now=SERVER_NOW + timedelta(seconds=50))
        dry.hint(200.0)
        assert dry.start() == BELOW

    def test_a_floor_in_an_old_backlog_stays_where_it_is(self, lane: Lane) -> None:
        look(lane, last=LAST, full=True)
        lane.hint(200.0)
        assert lane.start() == LAST

    def test_one_hint_is_good_for_one_rewind(self, dry: Lane) -> None:
        dry.hint(200.0)
        dry.start()
        assert dry.start() == FLOOR

    def test_a_look_may_be_followed_at_once_by_another(self, dry: Lane) -> None:
        dry.hint(100.0)
        assert dry.start() == BELOW

    def test_a_hint_that_came_during_a_look_is_kept_for_the_next(self, lane: Lane) -> None:
        lane.start()
        lane.hint(100.0)
        lane.scanned(None, SERVER_NOW, full=False)
        assert (lane.may_have_work, lane.start()) == (True, BELOW)

    def test_a_look_that_failed_is_made_again_as_far_below(self, dry: Lane) -> None:
        dry.hint(200.0)
        dry.start()
        dry.interrupted()
        assert (dry.may_have_work, dry.start()) == (True, BELOW)


class TestDue:
    def test_a_dry_lane_has_no_reason_to_wake_up(self, dry: Lane) -> None:
        assert dry.due_at == NEVER

    def test_the_earliest_due_time_counts(self, dry: Lane) -> None:
        for moment in (300.0, 200.0, 250.0):
            dry.note_due(moment)
        assert dry.due_at == 200.0

    def test_the_lane_stays_dry_before_that(self, dry: Lane) -> None:
        dry.note_due(200.0)
        dry.awaken(199.999)
        assert not dry.may_have_work

    def test_the_lane_may_have_work_at_that_time(self, dry: Lane) -> None:
        dry.note_due(200.0)
        dry.awaken(200.0)
        assert dry.may_have_work

    def test_a_due_time_wakes_once(self, dry: Lane) -> None:
        dry.note_due(200.0)
        dry.awaken(200.0)
        assert dry.due_at == NEVER

    def test_after_it_the_next_one_is_unknown(self, dry: Lane) -> None:
        dry.is_due_known = True
        dry.note_due(200.0)
        dry.awaken(200.0)
        assert not dry.is_due_known

    def test_a_look_before_that_time_does_not_forget_it(self, lane: Lane) -> None:
        lane.is_due_known = True
        lane.note_due(200.0)
        look(lane)
        assert lane.due_at == 200.0 or not lane.is_due_known

    def test_a_hint_that_knows_little_makes_the_due_time_unknown(self, dry: Lane) -> None:
        dry.is_due_known = True
        dry.hint(200.0, is_precise=False)
        assert not dry.is_due_known


class TestFailure:
    def test_halves_what_is_asked_for(self, lane: Lane) -> None:
        lane.failed(10, 100.0, alone=False)
        assert lane.most == 5

    def test_asks_for_one_at_least(self, lane: Lane) -> None:
        lane.failed(1, 100.0, alone=True)
        assert lane.most == 1

    def test_with_others_is_tried_alone_at_once(self, lane: Lane) -> None:
        lane.failed(10, 100.0, alone=False)
        assert lane.retry_at == 100.0

    def test_alone_is_tried_again_after_growing_pauses(self, lane: Lane) -> None:
        pauses = []
        for _ in range(4):
            lane.failed(1, 100.0, alone=True)
            pauses.append(lane.retry_at - 100.0)
        assert pauses == sorted(set(pauses))

    def test_is_over_after_a_claim_that_worked(self, lane: Lane) -> None:
        lane.failed(10, 100.0, alone=True)
        lane.worked(quickly=True)
        assert (lane.failures, lane.most) == (0, 10)

    def test_is_remembered_while_claims_take_nearly_all_their_time(self, lane: Lane) -> None:
        lane.failed(10, 100.0, alone=True)
        lane.worked(quickly=False)
        assert (lane.failures, lane.most) == (0, 5)


class TestCertainty:
    """Whether something is known of a lane, or it was only meant together with all others."""

    def test_begins_without(self) -> None:
        assert not Lane("orders", 0, False).has_work

    def test_comes_with_a_hint_that_names_it(self, dry: Lane) -> None:
        dry.hint(101.0, is_named=False)
        assert (dry.may_have_work, dry.has_work) == (True, False)
        dry.hint(101.0)
        assert dry.has_work

    def test_is_not_taken_away_by_a_hint_for_all(self, dry: Lane) -> None:
        dry.hint(101.0)
        dry.hint(102.0, is_named=False)
        assert dry.has_work

    def test_comes_with_a_full_page(self, lane: Lane) -> None:
        lane.scanned(LAST, SERVER_NOW, full=True)
        assert lane.has_work

    def test_comes_with_a_time_that_has_come(self, dry: Lane) -> None:
        dry.note_due(150.0)
        dry.awaken(150.0)
        assert dry.has_work

    def test_comes_with_a_floor_that_is_lowered(self, dry: Lane) -> None:
        dry.lower(*LAST)
        assert dry.has_work

    def test_ends_with_a_scan_that_found_the_end(self, dry: Lane) -> None:
        dry.hint(101.0)
        look(dry)
        assert (dry.may_have_work, dry.has_work) == (False, False)

    def test_stays_when_the_hint_came_during_the_scan(self, dry: Lane) -> None:
        dry.hint(101.0)
        dry.start()
        dry.hint(102.0)
        dry.scanned(None, SERVER_NOW, full=False)
        assert (dry.may_have_work, dry.has_work) == (True, True)

    def test_is_not_left_over_when_a_hint_for_all_came_during_the_scan(self, dry: Lane) -> None:
        dry.hint(101.0)
        dry.start()
        dry.hint(102.0, is_named=False)
        dry.scanned(None, SERVER_NOW, full=False)
        assert (dry.may_have_work, dry.has_work) == (True, False)

    def test_of_a_look_lets_the_claim_start_where_the_look_did(self, dry: Lane) -> None:
        dry.hint(101.0, is_named=False)
        began = dry.start()
        dry.found()
        assert dry.has_work
        assert dry.start() == began == BELOW
