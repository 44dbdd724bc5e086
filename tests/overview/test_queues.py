"""How many messages wait in each queue and how old the oldest is; what is leased, scheduled or dead; and timers."""

from typing import Any

import pytest
from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.overview import queues as lanes
from faststream_outbox._internal.overview.queues import Counts, status_of
from faststream_outbox.errors import InvalidMessage, InvalidOption
from faststream_outbox.overview import Overview, QueueStatus
from faststream_outbox.queue import OutboxClient, pause
from tests.overview.conftest import APART, EXPIRED, LATER, LEASED, Fill


async def only(overview: Overview) -> QueueStatus:
    """What is said of the only queue."""
    (found,) = await overview.queues()
    return found


async def test_each_kind_is_counted(overview_by: Overview, fill: Fill, bury: Fill) -> None:
    for key in ("null", "'k' || n"):
        for priority in ("0", "5", "-3"):
            fill(2, key=key, priority=priority)
            fill(1, key=key, priority=priority, **LEASED)
            fill(1, key=key, priority=priority, **EXPIRED)
            fill(4, key=key, priority=priority, **LATER)
            fill(1, key=key, priority=priority, **APART)
    bury(7)
    found = await only(overview_by)
    assert (found.ready, found.leased, found.scheduled, found.set_apart, found.dead) == (18, 6, 24, 6, 7)
    assert (found.queue, found.is_paused, found.is_estimate, found.estimated_total) == ("orders", False, False, None)


async def test_queues_come_by_name_with_those_that_have_only_dead_letters_or_a_pause(
    overview: Overview, fill: Fill, bury: Fill, engine: AsyncEngine, table: Table
) -> None:
    fill(1, "b")
    fill(2, "ab", key="'k'")
    bury(3, "gone")
    await pause(OutboxClient(engine, table, log=None), "later", create=True)
    found = await overview.queues()
    assert [(each.queue, each.ready, each.dead, each.is_paused) for each in found] == [
        ("ab", 2, 0, False),
        ("b", 1, 0, False),
        ("gone", 0, 3, False),
        ("later", 0, 0, True),
    ]


async def test_one_queue_is_asked_for(overview_by: Overview, fill: Fill) -> None:
    fill(1, "one")
    fill(2, "other")
    assert [(each.queue, each.ready) for each in await overview_by.queues("other")] == [("other", 2)]
    assert list(await overview_by.queues("drained")) == []
    with pytest.raises(InvalidMessage, match="reserved"):
        await overview_by.queues("$paused")


async def test_oldest_is_the_first_that_is_ready_and_not_the_first(overview: Overview, fill: Fill) -> None:
    fill(1, next_attempt_at="now() - interval '3 hours'", **LEASED)
    fill(1, next_attempt_at="now() - interval '1 hour'", key="'k'", priority="7")
    fill(1, next_attempt_at="now() - interval '1 minute'")
    found = await only(overview)
    assert 3600 <= found.oldest_ready_seconds < 2 * 3600


async def test_nothing_ready_has_no_age(overview: Overview, fill: Fill) -> None:
    fill(1, **LATER)
    fill(1, **LEASED)
    found = await only(overview)
    assert found.oldest_ready_seconds == 0


async def test_times_that_no_clock_has_are_no_trouble(overview_by: Overview, fill: Fill) -> None:
    fill(1, next_attempt_at="'-infinity'")
    fill(1, acquired_token="gen_random_uuid()", acquired_at="'infinity'")
    fill(1, acquired_token="gen_random_uuid()", acquired_at="'-infinity'")
    found = await only(overview_by)
    assert (found.ready, found.leased) == (2, 1)
    assert found.oldest_ready_seconds > 0


async def test_lease_ends_when_the_workers_say_so(engine: AsyncEngine, table: Table, fill: Fill) -> None:
    fill(1, acquired_token="gen_random_uuid()", acquired_at="now() - interval '10 minutes'")
    for ttl, expected in ((60.0, (1, 0)), (3600.0, (0, 1))):
        overview = Overview(engine, table=table, lease_ttl_seconds=ttl)
        (found,) = await overview.queues()
        assert (found.ready, found.leased) == expected
        await overview.close()


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST", 100)
    monkeypatch.setattr(lanes, "BUDGET", 150)


@pytest.mark.usefixtures("small_budget")
async def test_long_queue_is_counted_to_a_limit_and_estimated(
    overview: Overview, fill: Fill, sync_engine: Engine
) -> None:
    fill(5000, "long")
    fill(20, "long", **LATER)
    for number in range(10):
        fill(5, f"short{number}")
    with sync_engine.begin() as connection:
        connection.execute(text("analyze outbox"))
    long, *short = await overview.queues()
    assert {(each.ready, each.is_estimate) for each in short} == {(5, False)}
    assert long.is_estimate
    assert long.scheduled == 20
    assert 4000 < long.ready < 6000, "the rest of what the planner believes"
    assert long.estimated_total is not None


@pytest.mark.usefixtures("small_budget")
async def test_of_two_long_kinds_at_least_so_many_are_shown(overview: Overview, fill: Fill) -> None:
    fill(500)
    fill(500, **LATER)
    found = await only(overview)
    assert found.is_estimate
    assert (found.ready, found.scheduled) == (101, 101)


@pytest.mark.usefixtures("small_budget")
async def test_exactly_the_limit_is_no_estimate(overview: Overview, fill: Fill, bury: Fill) -> None:
    fill(100)
    bury(100)
    found = await only(overview)
    assert (found.ready, found.dead, found.is_estimate) == (100, 100, False)
    bury(1)
    found = await only(overview)
    assert (found.dead, found.is_estimate) == (101, True)


async def test_many_queues_are_asked_for_in_slices(overview_by: Overview, sync_engine: Engine) -> None:
    names = "select 'q' || lpad(n::text, 5, '0'), '' from generate_series(1, 1100) n"
    with sync_engine.begin() as connection:
        connection.execute(text(f"insert into outbox (queue, payload) {names}"))
    found = await overview_by.queues()
    assert len(found) == 1100
    assert {each.ready for each in found} == {1}
    assert found[0].queue == "q00001"


async def test_without_dead_letters_none_are_counted(engine: AsyncEngine, table: Table, fill: Fill) -> None:
    fill(1)
    overview = Overview(engine, table=table)
    found = await only(overview)
    assert found.dead == 0
    await overview.close()


async def test_overview_without_queues_says_what_it_needs(engine: AsyncEngine) -> None:
    overview = Overview(engine)
    for ask in (overview.queues, overview.timers, overview.dead_groups, overview.rates, lambda: overview.message(1)):
        with pytest.raises(InvalidOption, match="table=make_outbox_table"):
            await ask()


def test_rest_of_the_estimate_is_of_the_kind_that_was_not_counted_to_its_end() -> None:
    rest: dict[str, Any] = {"dead": 0, "more_dead": False, "is_paused": False}
    due = Counts(ready=100, leased=10, scheduled=5, more_due=True)
    assert status_of("q", due, total=1000, **rest).ready == 985
    assert status_of("q", due, total=3, **rest).ready == 100, "never less than was counted"
    assert status_of("q", due, total=None, **rest).ready == 100
    later = Counts(ready=7, scheduled=100, more_later=True)
    assert status_of("q", later, total=1000, **rest).scheduled == 993
    both = Counts(ready=100, scheduled=100, more_due=True, more_later=True)
    found = status_of("q", both, total=1000, **rest)
    assert (found.ready, found.scheduled, found.estimated_total) == (100, 100, 1000)


def test_share_of_a_lane_is_what_the_budget_allows() -> None:
    assert lanes.share(0) == lanes.share(1) == lanes.MOST
    assert lanes.share(500) * 500 <= lanes.BUDGET
    assert lanes.share(10**9) == lanes.LEAST


@pytest.fixture(params=["all are sorted", "in due order"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to find them, whatever their number."""
    if request.param == "in due order":
        monkeypatch.setattr(lanes, "MOST", 0)


@pytest.mark.usefixtures("way")
async def test_timers_come_in_due_order(overview_by: Overview, fill: Fill) -> None:
    fill(3, timer_id="'far' || n", next_attempt_at="now() + n * interval '1 day'")
    fill(1, timer_id="'near'", key="'k'", priority="9", **LATER)
    fill(1, queue="mails", timer_id="'due'", attempts_count="2", next_attempt_at="now() - interval '1 day'", **LEASED)
    fill(5)
    fill(5, **LATER)
    found = await overview_by.timers()
    assert [each.timer_id for each in found] == ["due", "near", "far1", "far2", "far3"]
    due, near, *_ = found
    assert (due.queue, due.is_leased, due.attempts_count) == ("mails", True, 2)
    assert (near.queue, near.is_leased, near.attempts_count) == ("orders", False, 0)
    assert [each.timer_id for each in await overview_by.timers(limit=2)] == ["due", "near"]
    assert [each.timer_id for each in await overview_by.timers("mails")] == ["due"]
    assert list(await overview_by.timers("nothing")) == []


async def test_pauses_are_no_timers(overview: Overview, fill: Fill) -> None:
    fill(1, queue="$paused", timer_id="'orders'", **LEASED)
    assert list(await overview.timers()) == []


async def test_limit_that_shows_nothing_is_refused(overview: Overview) -> None:
    with pytest.raises(InvalidOption, match="limit"):
        await overview.timers(limit=0)
