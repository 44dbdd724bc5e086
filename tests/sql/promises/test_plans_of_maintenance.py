"""What operators ask and what maintenance does keeps its index and its cost at a million messages."""

from collections.abc import Iterator

import pytest

from tests.sql.plans import PlanMode
from tests.sql.promises.test_plans_of_log import (
    ASIDES,
    MESSAGES,
    MIDDLE,
    PER_TICK,
    SPANS,
    Million,
    million,
    mode,
)

__all__ = ["million", "mode"]
pytestmark = pytest.mark.slow


EXPIRY = {"group_seconds": 3600.0}


def test_slice_of_retention_walks_what_it_deletes_and_what_is_set_aside_there(million: Million, mode: PlanMode) -> None:
    """Of the three groups with messages deferred, the one that has a place counts."""
    place = {"tick": MIDDLE // PER_TICK, "position": MIDDLE, "floor": MIDDLE + 1, "age": 0.0}
    slice_ = 2000
    among = million.cost("retention", "delete_slice", {**EXPIRY, **place, "after": 5000, "limit": slice_}, mode)
    beyond = million.cost("retention", "delete_slice", {**EXPIRY, **place, "after": ASIDES, "limit": slice_}, mode)
    assert "million_deferred_pkey" in among.scans
    # The offsets of 51 groups are walked over twice.
    assert among.walked <= 2 * slice_ + 3 * 51 * SPANS
    assert beyond.walked <= 2 * slice_ + 3 * 51 * SPANS
    assert beyond.buffers <= 8 * slice_


def test_slice_of_ticks_walks_one_message_of_each(million: Million, mode: PlanMode) -> None:
    values = {**EXPIRY, "first": 1, "reached": MESSAGES, "after": 0, "limit": 100}
    cost = million.cost("retention", "delete_ticks", values, mode)
    assert cost.walked <= 2 * 100 + 2 * 51 * SPANS + 10


def test_no_message_of_ticks_beyond_what_was_cleaned_is_looked_for(million: Million, mode: PlanMode) -> None:
    values = {**EXPIRY, "first": 1, "reached": 10 * PER_TICK, "after": 0, "limit": 400}
    cost = million.cost("retention", "delete_ticks", values, mode)
    assert cost.walked <= 400 + 10 + 2 * 51 * SPANS + 10


@pytest.fixture
def restored(million: Million) -> Iterator[Million]:
    """As autovacuum leaves a log that was restored: it has seen to the messages, and not to the few ticks."""
    million.execute("delete from pg_statistic where starelid = '{ticks}'::regclass")
    million.execute("update pg_class set reltuples = -1, relpages = 0 where oid = '{ticks}'::regclass")
    yield million
    million.execute("analyze {ticks}")


def test_repair_walks_the_messages_of_its_ticks_whatever_the_planner_knows(restored: Million, mode: PlanMode) -> None:
    restored.execute("set statement_timeout = '30s'")
    cost = restored.cost("tick", "kept", {"tick": 0, "limit": 10 * PER_TICK}, mode)
    restored.execute("reset statement_timeout")
    assert cost.walked <= 10 * PER_TICK + 1000


def test_lag_of_all_groups_looks_at_a_limited_number_of_messages(million: Million, mode: PlanMode) -> None:
    """Half a million are unread, by 816 spans that all stand at the same place."""
    values = {"group": None, "uri": None, "most": 2000, "least": 200}
    cost = million.cost("position", "lag", values, mode)
    assert {"million_pkey", "million_ticks_pkey"} <= cost.scans
    assert cost.walked <= 2000 + 2 * (MESSAGES - MIDDLE) // PER_TICK + 51 * SPANS + 100
    assert cost.buffers <= 2000


def test_tick_of_a_position_is_guessed_without_walking_all_ticks(million: Million, mode: PlanMode) -> None:
    cost = million.cost("position", "guess_tick", {"position": 1500}, mode)
    assert "million_ticks_pkey" in cost.scans
    # Ten halvings of a thousand ticks, with eight of them looked at each time.
    assert cost.walked <= 10 * 8 + 20
    near = million.cost("position", "place_of", {"position": 1500, "first": 1, "end": 65}, mode)
    assert (near.scans, near.walked <= 64) == ({"million_ticks_pkey"}, True)


def test_page_of_what_a_group_has_set_aside_walks_the_page(million: Million, mode: PlanMode) -> None:
    values = {
        "group": "h", "uri": None, "state": None, "key": None, "error_type": None, "limit": 50,
        "after_group": "h", "after_uri": "", "after_position": 10_000,
    }  # fmt: skip
    for name in ("list_deferred_of_group", "list_deferred"):
        cost = million.cost("deferred", name, values, mode)
        assert cost.scans == {"million_deferred_pkey", "million_pkey"}
        assert cost.walked <= 110


def test_list_of_groups_counts_what_waits_up_to_a_limit(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group_admin", "list_groups", {"group": None, "uri": None, "most": 500}, mode)
    assert cost.walked <= 4 * (51 * SPANS) + 4 * 500 + 100


def test_census_does_not_count_what_is_parked(million: Million, mode: PlanMode) -> None:
    values = {"groups": ["parked"], "uris": [""], "holds": [False]}
    cost = million.cost("group", "census", values, mode)
    assert "million_deferred_wait_idx" in cost.scans
    assert cost.walked <= 5
