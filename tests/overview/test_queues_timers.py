"""Timers that have not fired, the next one first."""

import pytest

from faststream_outbox._internal.overview import queues as timers
from faststream_outbox.errors import InvalidOption
from faststream_outbox.overview import Overview
from tests.overview.conftest import LATER, LEASED, Fill


@pytest.fixture(params=["all are sorted", "in due order"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to find them, whatever their number."""
    if request.param == "in due order":
        monkeypatch.setattr(timers, "MOST", 0)


@pytest.mark.usefixtures("way")
async def test_timers_come_in_due_order(overview: Overview, fill: Fill) -> None:
    fill(3, timer_id="'far' || n", next_attempt_at="now() + n * interval '1 day'")
    fill(1, timer_id="'near'", key="'k'", priority="9", **LATER)
    fill(1, queue="mails", timer_id="'due'", attempts_count="2", next_attempt_at="now() - interval '1 day'", **LEASED)
    fill(5)
    fill(5, **LATER)
    found = await overview.timers()
    assert [each.timer_id for each in found] == ["due", "near", "far1", "far2", "far3"]
    due, near, *_ = found
    assert (due.queue, due.is_leased, due.attempts_count) == ("mails", True, 2)
    assert (near.queue, near.is_leased, near.attempts_count) == ("orders", False, 0)
    assert [each.timer_id for each in await overview.timers(limit=2)] == ["due", "near"]
    assert [each.timer_id for each in await overview.timers("mails")] == ["due"]
    assert list(await overview.timers("nothing")) == []


async def test_pauses_are_no_timers(overview: Overview, fill: Fill) -> None:
    fill(1, queue="$paused", timer_id="'orders'", **LEASED)
    assert list(await overview.timers()) == []


async def test_limit_that_shows_nothing_is_refused(overview: Overview) -> None:
    with pytest.raises(InvalidOption, match="limit"):
        await overview.timers(limit=0)
