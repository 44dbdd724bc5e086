"""A claim plan knows its lanes, which of them a hint means, and when a full scan is due."""

import pytest

from faststream_outbox._internal.queue.lanes import NEVER
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.queue.plan import (
    FEW_LANES,
    JITTER,
    KEEP_LANE_SECONDS,
    ClaimPlan,
    LaneName,
    next_interval,
)
from faststream_outbox._internal.wakeup.hint import Hint

OPTIONS = WorkerOptions(min_fetch_interval=1.0, max_fetch_interval=8.0)


@pytest.fixture
def plan() -> ClaimPlan:
    """A claim plan of two queues that was scanned at time 100 and whose lanes are dry."""
    plan = ClaimPlan(["orders", "mails"], OPTIONS)
    plan.scanned({}, 100.0, 0.001)
    dry(plan)
    return plan


def dry(plan: ClaimPlan) -> None:
    for lane in plan.lanes.values():
        lane.may_have_work = lane.wants_rewind = False
        lane.is_due_known = True


def with_work(plan: ClaimPlan) -> set[LaneName]:
    return {name for name, lane in plan.lanes.items() if lane.may_have_work}


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


class TestScanThatIsAskedFor:
    def test_while_one_takes_place_follows_it(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", scan=True), 199.995)
        plan.scanned({}, 200.0, 0.01)
        assert plan.scan_at == plan.earliest_scan

    def test_before_one_is_that_one(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", scan=True), 199.985)
        plan.scanned({}, 200.0, 0.01)
        assert plan.scan_at > plan.earliest_scan


class TestHint:
    def test_for_another_queue_changes_nothing(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("other"), 200.0)
        assert with_work(plan) == set()

    def test_for_a_queue_is_work_of_that_queue_only(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", keyed=False), 200.0)
        assert with_work(plan) == {("orders", 0, False)}

    def test_for_no_queue_is_work_of_all(self, plan: ClaimPlan) -> None:
        plan.hint(Hint(None, keyed=False), 200.0)
        assert with_work(plan) == {("orders", 0, False), ("mails", 0, False)}

    def test_names_the_priorities_and_kinds(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", priorities=frozenset((3, 7)), keyed=True, keyless=False), 200.0)
        assert with_work(plan) == {("orders", 3, True), ("orders", 7, True)}

    def test_without_priorities_means_all_that_are_known(self, plan: ClaimPlan) -> None:
        plan.lane(("orders", 9, False)).may_have_work = False
        plan.hint(Hint("orders", keyed=False), 200.0)
        assert with_work(plan) == {("orders", 0, False), ("orders", 9, False)}

    def test_for_later_is_no_work_now(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        assert with_work(plan) == set()

    def test_for_later_wakes_at_that_time(self, plan: ClaimPlan) -> None:
        plan.scan_at = 1000.0
        plan.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        assert plan.wakes_at() == 205.0

    def test_for_later_is_work_when_its_time_has_come(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", keyed=False, due_in=5.0), 200.0)
        plan.awaken(205.0)
        assert with_work(plan) == {("orders", 0, False)}

    def test_may_ask_for_a_look_from_the_beginning(self, plan: ClaimPlan) -> None:
        plan.scan_at = 1000.0
        plan.hint(Hint("orders", scan=True), 200.0)
        assert plan.scan_at == 200.0

    def test_of_another_queue_does_not_ask_for_a_look_from_the_beginning(self, plan: ClaimPlan) -> None:
        plan.scan_at = 1000.0
        plan.hint(Hint("other", scan=True), 200.0)
        assert plan.scan_at == 1000.0

    def test_may_not_ask_for_one_scan_after_the_other(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", scan=True), 100.001)
        assert plan.scan_at == plan.earliest_scan > 100.001

    def test_does_not_put_a_scan_off(self, plan: ClaimPlan) -> None:
        plan.scan_at = 50.0
        plan.hint(Hint("orders", scan=True), 200.0)
        assert plan.scan_at == 50.0


class TestScan:
    def test_comes_first_of_all(self) -> None:
        assert ClaimPlan(["orders"], OPTIONS).scan_at == 0.0

    def test_adds_the_lanes_that_it_saw(self, plan: ClaimPlan) -> None:
        plan.scanned({("orders", 7, False): None}, 200.0, 0.001)
        assert ("orders", 7, False) in plan.lanes

    def test_is_work_of_the_lanes_that_it_saw(self, plan: ClaimPlan) -> None:
        plan.scanned({("orders", 0, False): None}, 200.0, 0.001)
        assert with_work(plan) == {("orders", 0, False)}

    def test_keeps_the_work_that_it_did_not_see(self, plan: ClaimPlan) -> None:
        """A hint came while it took place."""
        plan.hint(Hint("mails", keyed=False), 199.9995)
        plan.scanned({}, 200.0, 0.001)
        assert with_work(plan) == {("mails", 0, False)}

    def test_comes_again_after_the_interval_give_or_take_the_jitter(self, plan: ClaimPlan) -> None:
        plan.found()
        plan.scanned({}, 200.0, 0.001)
        assert 1.0 - JITTER <= plan.scan_at - 200.0 <= 1.0 + JITTER

    def test_comes_less_often_when_nothing_was_found_since(self, plan: ClaimPlan) -> None:
        plan.found()
        plan.scanned({}, 200.0, 0.001)
        plan.scanned({}, 300.0, 0.001)
        assert plan.scan_at - 300.0 > 1.0 + JITTER

    def test_that_is_always_slow_comes_at_a_multiple_of_its_duration(self, plan: ClaimPlan) -> None:
        plan.scanned({}, 200.0, 2.0)
        plan.found()
        plan.scanned({}, 300.0, 3.0)
        assert plan.scan_at - 300.0 >= 10 * 2.0

    def test_that_was_slow_once_comes_as_soon_as_others(self, plan: ClaimPlan) -> None:
        """It stood behind a lock, or this process stood still."""
        plan.scanned({}, 200.0, 0.001)
        plan.found()
        plan.scanned({}, 300.0, 30.0)
        assert plan.scan_at - 300.0 <= 1.0 + JITTER
        plan.ask_scan(301.0)
        assert plan.scan_at <= 301.0

    def test_that_was_slow_first_comes_as_soon_as_others(self) -> None:
        plan = ClaimPlan(["orders"], OPTIONS)
        plan.scanned({}, 200.0, 30.0)
        plan.ask_scan(201.0)
        assert plan.scan_at <= 201.0

    def test_does_not_forget_what_was_published_for_later_while_it_took_place(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", priorities=frozenset((7,)), keyed=False, due_in=0.5), 199.0)
        # A claim has found that nothing is due yet.
        plan.lanes["orders", 7, False].may_have_work = False
        plan.scanned({}, 199.25, 0.5)
        assert plan.lanes["orders", 7, False].due_at == 199.5

    def test_forgets_a_lane_that_was_empty_for_long(self, plan: ClaimPlan) -> None:
        plan.lane(("orders", 7, False)).may_have_work = False
        plan.scanned({}, KEEP_LANE_SECONDS + 1.0, 0.001)
        assert ("orders", 7, False) not in plan.lanes

    @pytest.mark.parametrize("reason", ["seen", "has work", "hinted"])
    def test_keeps_a_lane_that_has_or_may_have_messages(self, plan: ClaimPlan, reason: str) -> None:
        name = ("orders", 7, False)
        lane = plan.lane(name)
        lane.may_have_work = reason == "has work"
        lane.hinted_at = 190.0 if reason == "hinted" else 0.0
        plan.scanned({name: None} if reason == "seen" else {}, 200.0, 0.001)
        assert name in plan.lanes

    def test_keeps_the_plain_lane_of_each_queue_for_ever(self, plan: ClaimPlan) -> None:
        plan.scanned({}, 1e9, 0.001)
        assert {("orders", 0, False), ("mails", 0, False)} <= set(plan.lanes)

    def test_is_no_reason_to_claim(self, plan: ClaimPlan) -> None:
        """Scans run beside the claims."""
        assert plan.wakes_at() == NEVER


class TestWet:
    def test_gives_lanes_of_the_kind_asked_for(self, plan: ClaimPlan) -> None:
        plan.hint(Hint("orders", priorities=frozenset((0,))), 200.0)
        assert [[lane.keyed for lane in plan.with_work(keyed=keyed)] for keyed in (True, False)] == [[True], [False]]


class TestManyLanes:
    @pytest.fixture
    def many(self) -> ClaimPlan:
        """A plan of many queues that every one may have something in, and one that has."""
        plan = ClaimPlan([f"q{number}" for number in range(100)], OPTIONS)
        plan.hint(Hint("q7", priorities=frozenset((0,)), keyed=False), 100.0)
        return plan

    def sure(self, plan: ClaimPlan, room: int) -> int:
        return len(plan.sure(plan.with_work(keyed=False), room))

    def test_are_claimed_from_where_something_is_known_of_them(self, many: ClaimPlan) -> None:
        assert (self.sure(many, 1), many.is_unsure) == (1, True)

    def test_are_claimed_from_without_a_probe_where_there_is_room_for_all(self, many: ClaimPlan) -> None:
        assert (self.sure(many, 99), many.is_unsure) == (100, False)

    def test_are_claimed_from_without_a_probe_where_they_are_few(self) -> None:
        few = ClaimPlan([f"q{number}" for number in range(FEW_LANES)], OPTIONS)
        assert (self.sure(few, 1), few.is_unsure) == (FEW_LANES, False)

    def test_are_all_probed_but_those_that_have_something(self, many: ClaimPlan) -> None:
        self.sure(many, 1)
        assert len(many.to_probe(1000)) == 99
        assert not many.is_unsure

    def test_are_probed_again_where_there_are_more(self, many: ClaimPlan) -> None:
        assert len(many.to_probe(98)) == 98
        assert many.is_unsure

    def test_are_not_probed_all_the_time(self, many: ClaimPlan) -> None:
        self.sure(many, 1)
        many.probed(200.0, 0.5, worked=True)
        assert many.wakes_at() == many.probe_at == 200.5

    def test_are_claimed_from_in_turn_while_probes_fail(self, many: ClaimPlan) -> None:
        many.probed(200.0, 0.0, worked=False)
        assert (self.sure(many, 1), many.is_unsure) == (100, True)
