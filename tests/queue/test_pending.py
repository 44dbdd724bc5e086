"""Who is written next, after failures: the guilty one alone and last, an outage without a storm."""

from itertools import pairwise

from faststream_outbox._internal.queue.pending import (
    APART_SECONDS,
    APART_TIMES,
    MOST_PER_STATEMENT,
    Apart,
    Ended,
    Pending,
)
from faststream_outbox.queue import DONE
from tests.cases import each
from tests.queue.claims import claim_of


class Refused(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def filled(count: int) -> tuple[Pending, list[Ended]]:
    pending = Pending()
    items: list[Ended] = [(claim_of(), DONE) for _ in range(count)]
    pending.fresh.extend(items)
    return pending, items


def refused(pending: Pending, times: int, until: float) -> Apart:
    """The only outcome, after it was refused so often: at once, and the last time at that time."""
    pending.refused(pending.take(0.0), 0.0)
    (apart,) = pending.apart
    for time in range(1, times):
        pending.apart.clear()
        pending.refused_apart(apart, until if time == times - 1 else 0.0, Refused("23514"))
    return apart


def is_given_up(times: int, seconds: float) -> bool:
    pending, _ = filled(1)
    return refused(pending, times, seconds).error is not None


class TestRefused:
    @each("guilty", [0, 7, 99])
    def test_all_but_the_guilty_one_are_written_in_few_statements(self, guilty: int) -> None:
        pending, items = filled(100)
        written: list[Ended] = []
        statements, now = 0, 0.0
        while group := pending.take(now):
            statements += 1
            if items[guilty] in group:
                pending.refused(group, now)
                now = pending.wakes_at()
            else:
                written += group
                pending.wrote()
        left = [apart.item for apart in pending.apart]
        assert (len(written), left, statements < 30) == (99, [items[guilty]], True)

    def test_one_alone_comes_again_after_growing_pauses_until_it_is_given_up(self) -> None:
        pending, (item,) = filled(1)
        now, times = 0.0, []
        pending.refused(pending.take(now), now)
        while pending.apart[0].error is None:
            now = pending.wakes_at()
            apart = pending.take_apart(now)
            assert apart is not None
            assert apart.item is item
            times.append(now)
            pending.refused_apart(apart, now, Refused("23514"))
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert (pauses == sorted(pauses), times[-1] >= APART_SECONDS, len(times) >= APART_TIMES - 1) == (
            True,
            True,
            True,
        )

    def test_one_is_given_up_after_many_refusals_over_some_time_only(self) -> None:
        times = [(APART_TIMES - 1, 3600.0), (3600, APART_SECONDS / 2), (APART_TIMES, APART_SECONDS)]
        assert [is_given_up(*one) for one in times] == [False, False, True]

    def test_one_that_was_written_begins_anew(self) -> None:
        pending, (item,) = filled(1)
        apart = refused(pending, APART_TIMES - 1, 0.0)
        pending.over(apart)
        pending.refused_apart(Apart(item, 3600.0), 3600.0, Refused("23514"))
        assert pending.apart[-1].error is None

    def test_one_that_its_worker_leaves_begins_anew(self) -> None:
        pending, (item,) = filled(1)
        refused(pending, APART_TIMES - 1, 0.0)
        pending.give_up(item[0].worker)
        pending.refused_apart(Apart(item, 3600.0), 3600.0, Refused("23514"))
        assert pending.apart[-1].error is None

    def test_fresh_ones_do_not_wait_for_the_pause_of_one_apart(self) -> None:
        pending, _ = filled(1)
        for _ in range(6):
            pending.refused(pending.take(0.0), 0.0)
            pending.fresh.append((claim_of(), DONE))
        assert pending.wakes_at() <= 0.1


class TestOutage:
    def test_all_wait_together_and_are_one_group_again(self) -> None:
        pending, items = filled(100)
        now = 0.0
        for _ in range(20):
            group = pending.take(now)
            assert group == items
            pending.failed(group, now, is_connected=False)
            assert pending.take(now) == []
            now = pending.wakes_at()
        assert pending.take(now) == items

    def test_the_server_is_asked_ever_more_seldom(self) -> None:
        pending, _ = filled(1000)
        now, asked = 0.0, 0
        while now < 60.0:
            apart = pending.take_apart(now)
            if apart is not None:
                pending.failed_apart(apart, now)
            else:
                pending.failed(pending.take(now), now, is_connected=True)
            asked += 1
            now = pending.wakes_at()
        assert asked < 25

    def test_groups_grow_again_once_it_is_over(self) -> None:
        pending, _ = filled(3000)
        for now in range(100, 2000, 100):
            pending.failed(pending.take(now), now, is_connected=True)
        sizes = []
        while group := pending.take(10_000):
            sizes.append(len(group))
            pending.wrote()
        assert (sizes[:4], max(sizes)) == ([1, 2, 4, 8], MOST_PER_STATEMENT)


def test_what_a_worker_leaves_is_forgotten_and_that_of_others_stays() -> None:
    pending, (theirs, (alone, outcome), (left, _)) = filled(3)
    pending.fresh.remove((alone, outcome))
    pending.blocked([(alone, outcome)], 0.0)
    assert [*pending.give_up(alone.worker), *pending.give_up(left.worker)] == [alone, left]
    assert (pending.fresh, pending.apart) == ([theirs], [])
