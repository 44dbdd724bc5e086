"""An intake knows its lanes, which of them a hint means, and when to look from the beginning."""

import pytest

from faststream_outbox.queue.intake import JITTER, KEEP_LANE_SECONDS, Intake, LaneName, next_interval
from faststream_outbox.queue.lane import NEVER
from faststream_outbox.queue.options import WorkerOptions
from faststream_outbox.wakeup.hint import Hint

OPTIONS = WorkerOptions(min_fetch_interval=1.0, max_fetch_interval=8.0)


@pytest.fixture
def intake() -> Intake:
    """An intake of two queues that was scanned at time 100 and whose lanes are dry."""
    intake = Intake(["orders", "mails"], OPTIONS)
    intake.scanned({}, 100.0, 0.001)
    dry(intake)
    return intake


def dry(intake: Intake) -> None:
    for lane in intake.lanes.values():
        lane.is_wet = lane.wants_rewind = False
        lane.is_due_known = True


def wet(intake: Intake) -> set[LaneName]:
    return {name for name, lane in intake.lanes.items() if lane.is_wet}


class TestInterval:
    def test_is_the_shortest_while_there_is_work(self) -> None:
        assert next_interval(8.0, OPTIONS, found=True) == 1.0

    def test_grows_while_there_is_none(self) -> None:
        first = next_interval(1.0, OPTIONS, found=False)
        assert 1.0 < first < next_interval(first, OPTIONS, found=False)

    def test_ends_at_the_longest(self) -> None:
        assert next_interval(7.9, OPTIONS, found=False) == 8.0

    def test_is_not_longer_than_half_a_lease(self) -> None:
        options = WorkerOptions(min_fetch_interval=1.0, max_fetch_interval=60.0, lease_ttl_seconds=10.0)
        assert next_interval(50.0, options, found=False) == 5.0

    def test_of_a_short_lease_is_not_shorter_than_the_shortest(self) -> None:
        options = WorkerOptions(min_fetch_interval=1.0, max_fetch_interval=60.0, lease_ttl_seconds=0.1)
        assert next_interval(50.0, options, found=False) == 1.0


class TestHint:
    def test_for_another_queue_changes_nothing(self, intake: Intake) -> None:
        intake.hint(Hint("other"), 200.0)
        assert wet(intake) == set()

    def test_for_a_queue_wets_that_queue_only(self, intake: Intake) -> None:
        intake.hint(Hint("orders", keyed=False), 200.0)
        assert wet(intake) == {("orders", 0, False)}

    def test_for_no_queue_wets_all(self, intake: Intake) -> None:
        intake.hint(Hint(None, keyed=False), 200.0)
        assert wet(intake) == {("orders", 0, False), ("mails", 0, False)}

    def test_names_the_priorities_and_kinds(self, intake: Intake) -> None:
        intake.hint(Hint("orders", priorities=frozenset((3, 7)), keyed=True, keyless=False), 200.0)
        assert wet(intake) == {("orders", 3, True), ("orders", 7, True)}

    def test_without_priorities_means_all_that_are_known(self, intake: Intake) -> None:
        intake.lane(("orders", 9, False)).is_wet = False
        intake.hint(Hint("orders", keyed=False), 200.0)
        assert wet(intake) == {("orders", 0, False), ("orders", 9, False)}

    def test_for_later_wets_nothing_now(self, intake: Intake) -> None:
        intake.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        assert wet(intake) == set()

    def test_for_later_wakes_at_that_time(self, intake: Intake) -> None:
        intake.scan_at = 1000.0
        intake.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        assert intake.wakes_at() == 205.0

    def test_for_later_wets_when_its_time_has_come(self, intake: Intake) -> None:
        intake.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        intake.awaken(205.0)
        assert wet(intake) == {("orders", 0, False)}

    def test_may_ask_for_a_look_from_the_beginning(self, intake: Intake) -> None:
        intake.scan_at = 1000.0
        intake.hint(Hint("orders", scan=True), 200.0)
        assert intake.scan_at == 200.0

    def test_of_another_queue_does_not_ask_for_a_look_from_the_beginning(self, intake: Intake) -> None:
        intake.scan_at = 1000.0
        intake.hint(Hint("other", scan=True), 200.0)
        assert intake.scan_at == 1000.0

    def test_may_not_ask_for_one_scan_after_the_other(self, intake: Intake) -> None:
        intake.hint(Hint("orders", scan=True), 100.001)
        assert intake.scan_at == intake.earliest_scan > 100.001

    def test_does_not_put_a_scan_off(self, intake: Intake) -> None:
        intake.scan_at = 50.0
        intake.hint(Hint("orders", scan=True), 200.0)
        assert intake.scan_at == 50.0


class TestScan:
    def test_comes_first_of_all(self) -> None:
        assert Intake(["orders"], OPTIONS).scan_at == 0.0

    def test_adds_the_lanes_that_it_saw(self, intake: Intake) -> None:
        intake.scanned({("orders", 7, False): None}, 200.0, 0.001)
        assert ("orders", 7, False) in intake.lanes

    def test_makes_every_lane_look_again(self, intake: Intake) -> None:
        intake.scanned({}, 200.0, 0.001)
        assert wet(intake) == {("orders", 0, False), ("mails", 0, False)}

    def test_comes_again_after_the_interval_give_or_take_the_jitter(self, intake: Intake) -> None:
        intake.found()
        intake.scanned({}, 200.0, 0.001)
        assert 1.0 - JITTER <= intake.scan_at - 200.0 <= 1.0 + JITTER

    def test_comes_less_often_when_nothing_was_found_since(self, intake: Intake) -> None:
        intake.found()
        intake.scanned({}, 200.0, 0.001)
        intake.scanned({}, 300.0, 0.001)
        assert intake.scan_at - 300.0 > 1.0 + JITTER

    def test_that_is_slow_comes_at_a_multiple_of_its_duration(self, intake: Intake) -> None:
        intake.found()
        intake.scanned({}, 200.0, 2.0)
        assert intake.scan_at - 200.0 >= 10 * 2.0

    def test_forgets_a_lane_that_was_empty_for_long(self, intake: Intake) -> None:
        intake.lane(("orders", 7, False)).is_wet = False
        intake.scanned({}, KEEP_LANE_SECONDS + 1.0, 0.001)
        assert ("orders", 7, False) not in intake.lanes

    @pytest.mark.parametrize("reason", ["seen", "wet", "hinted"])
    def test_keeps_a_lane_that_has_or_may_have_messages(self, intake: Intake, reason: str) -> None:
        name = ("orders", 7, False)
        lane = intake.lane(name)
        lane.is_wet = reason == "wet"
        lane.hinted_at = 190.0 if reason == "hinted" else 0.0
        intake.scanned({name: None} if reason == "seen" else {}, 200.0, 0.001)
        assert name in intake.lanes

    def test_keeps_the_plain_lane_of_each_queue_for_ever(self, intake: Intake) -> None:
        intake.scanned({}, 1e9, 0.001)
        assert {("orders", 0, False), ("mails", 0, False)} <= set(intake.lanes)

    def test_is_no_reason_to_claim(self, intake: Intake) -> None:
        """Scans run beside the claims."""
        assert intake.wakes_at() == NEVER


class TestWet:
    def test_gives_lanes_of_the_kind_asked_for(self, intake: Intake) -> None:
        intake.hint(Hint("orders", priorities=frozenset((0,))), 200.0)
        assert [[lane.keyed for lane in intake.wet(keyed=keyed)] for keyed in (True, False)] == [[True], [False]]
