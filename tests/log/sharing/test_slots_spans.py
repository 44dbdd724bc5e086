"""Who should hold which slots: plans that any number of members make for themselves, in any order."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from faststream_outbox._internal.log.sharing.slots import (
    BEGINNING,
    Cursor,
    Plan,
    SeenSpan,
    Span,
    fair_plan,
    fixed_plan,
    furthest_behind,
    joinable,
    partition,
)
from tests.cases import each

ALL = set(range(256))


def member(number: int) -> UUID:
    return UUID(int=number + 1)


class Table:
    """Spans as the database would have them: an owner for every slot, in runs."""

    def __init__(self) -> None:
        self.owners: list[UUID | None] = [None] * 256
        self.cuts: set[int] = {0}

    def seen(self) -> list[SeenSpan]:
        starts = sorted(self.cuts | {slot for slot in range(1, 256) if self.owners[slot] != self.owners[slot - 1]})
        ends = [*(start - 1 for start in starts[1:]), 255]
        return [
            SeenSpan(Span(lo, hi, BEGINNING, 1), self.owners[lo], self.owners[lo] is None)
            for lo, hi in zip(starts, ends, strict=True)
        ]

    def carry_out(self, plan: Plan, me: UUID) -> None:
        seen = self.seen()
        for runs, before, after in ((plan.give, me, None), (plan.take, None, me)):
            for lo, hi in runs:
                assert any(each.span.lo <= lo <= hi <= each.span.hi for each in seen), "not within one span"
                for slot in range(lo, hi + 1):
                    assert self.owners[slot] == before, "given up or taken without right"
                    self.owners[slot] = after
                self.cuts |= {lo, hi + 1} - {256}

    def size(self, who: UUID) -> int:
        return self.owners.count(who)


class Sharing(RuleBasedStateMachine):
    """Members come, go, and act on what they see; some of them know an old number of members."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.members: dict[UUID, int] = {}
        self.next = 0

    @rule()
    def join(self) -> None:
        if len(self.members) < 40:
            self.members[member(self.next)] = len(self.members) + 1
            self.next += 1

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.members:
            gone = data.draw(st.sampled_from(sorted(self.members)))
            del self.members[gone]
            self.table.owners = [None if owner == gone else owner for owner in self.table.owners]

    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        if self.members:
            self.members[data.draw(st.sampled_from(sorted(self.members)))] = len(self.members)

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        if self.members:
            me = data.draw(st.sampled_from(sorted(self.members)))
            self.table.carry_out(fair_plan(self.table.seen(), me, self.members[me]), me)

    @invariant()
    def every_slot_is_in_one_span(self) -> None:
        slots = [slot for each in self.table.seen() for slot in range(each.span.lo, each.span.hi + 1)]
        assert slots == list(range(256))

    def teardown(self) -> None:
        if not self.members:
            return
        for _ in range(3):
            for me in self.members:
                self.table.carry_out(fair_plan(self.table.seen(), me, len(self.members)), me)
        sizes = [self.table.size(me) for me in self.members]
        assert sum(sizes) == 256, "slots that nobody reads"
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_members_in_any_order_share_all_slots() -> None:
    run_state_machine_as_test(Sharing, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


@pytest.mark.slow
@each("members", [1, 2, 3, 5, 7, 20, 60, 129, 200])
def test_no_member_is_idle_and_none_has_anything_left_to_do(members: int) -> None:
    """Shares that differ by more than one slot leave processes without work."""
    table = Table()
    for _ in range(4):
        for number in range(members):
            table.carry_out(fair_plan(table.seen(), member(number), members), member(number))
    sizes = [table.size(member(number)) for number in range(members)]
    assert sum(sizes) == 256
    assert max(sizes) - min(sizes) <= 1
    assert [fair_plan(table.seen(), member(number), members) for number in range(members)] == [Plan()] * members


def test_member_gives_up_only_what_is_too_much() -> None:
    table = Table()
    table.owners = [member(0)] * 256
    plan = fair_plan(table.seen(), member(0), 4)
    assert sum(hi - lo + 1 for lo, hi in plan.give) == 192
    assert plan.take == ()


@pytest.mark.slow
@given(st.integers(1, 40), st.lists(st.integers(1, 255), max_size=20), st.data())
def test_fixed_reader_takes_what_is_free_of_its_slots_and_nothing_else(
    count: int, cuts: list[int], data: st.DataObject
) -> None:
    table = Table()
    table.cuts |= set(cuts)
    for slot in data.draw(st.sets(st.integers(0, 255))):
        table.owners[slot] = member(9)
    index = data.draw(st.integers(0, count - 1))
    lo, hi = partition(index, count)
    free = {slot for slot in range(lo, hi + 1) if table.owners[slot] is None}
    plan = fixed_plan(table.seen(), member(0), lo, hi)
    assert {slot for low, high in plan.take for slot in range(low, high + 1)} == free
    assert plan.give == ()
    table.carry_out(plan, member(0))
    assert table.size(member(0)) == len(free)


@st.composite
def rows_of_spans(draw: st.DrawFn) -> list[Span]:
    """Spans in order without overlap, some of them missing, with few different cursors."""
    starts = sorted(draw(st.sets(st.integers(0, 255), min_size=1, max_size=20)))
    ends = [*(start - 1 for start in starts[1:]), 255]
    cursors = st.sampled_from([Cursor(1, 5), Cursor(1, 9), Cursor(2, 3)])
    spans = [Span(lo, hi, draw(cursors), draw(st.integers(1, 3))) for lo, hi in zip(starts, ends, strict=True)]
    return [span for span in spans if draw(st.booleans())]


@given(rows_of_spans(), st.randoms())
def test_joinable_runs_are_neighbours_that_have_come_equally_far(spans: list[Span], random: object) -> None:
    shuffled = list(spans)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    runs = joinable(shuffled)
    for run in runs:
        assert len(run) > 1
        assert len({span.cursor for span in run}) == 1
        assert all(left.hi + 1 == right.lo for left, right in pairwise(run))
    joined = {span.lo for run in runs for span in run}
    for left, right in pairwise(spans):
        if left.hi + 1 == right.lo and left.cursor == right.cursor:
            assert {left.lo, right.lo} <= joined, "could be joined and is not"


@pytest.mark.slow
@given(rows_of_spans())
def test_furthest_behind_go_until_the_next_ones(spans: list[Span]) -> None:
    behind, until = furthest_behind(spans)
    if not spans:
        assert (behind, until) == ([], None)
        return
    lowest = min(span.cursor for span in spans)
    assert behind == [span for span in spans if span.cursor == lowest]
    later = [span.cursor for span in spans if span.cursor > lowest]
    assert until == (min(later) if later else None)


@given(st.integers(1, 256))
def test_partition_is_every_slot_once_in_equal_parts(count: int) -> None:
    parts = [range(lo, hi + 1) for lo, hi in (partition(index, count) for index in range(count))]
    assert [slot for part in parts for slot in part] == list(range(256))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
