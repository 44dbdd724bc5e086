"""What operators and the doctor ask and what maintenance does keeps its index and its cost at a million messages."""

from collections.abc import Iterator
from operator import eq, ge, le

import pytest

from tests.sql.million import ASIDES, GROUPS, MESSAGES, MIDDLE, PER_TICK, SPANS, Case, Million
from tests.sql.plans import PlanMode

pytestmark = pytest.mark.slow

EXPIRY = {"group_seconds": 3600.0}
PLACES = GROUPS * SPANS
SLICE = 2000
SLICED = {**EXPIRY, "tick": MIDDLE // PER_TICK, "position": MIDDLE, "floor": MIDDLE + 1, "age": 0.0, "limit": SLICE}
PAGE = {
    "group": "h", "uri": None, "state": None, "key": None, "error_type": None, "limit": 50,
    "after_group": "h", "after_uri": "", "after_position": 10_000,
}  # fmt: skip
MOST = 300

CASES = {
    # Of the three groups with messages deferred, the one that has a place counts. The offsets are walked over twice.
    "slice of retention walks what it deletes and what is set aside there": Case(
        "retention.delete_slice", {**SLICED, "after": 5000}, 2 * SLICE + 3 * PLACES, scans=(ge, {"deferred_pkey"})
    ),
    "slice of retention beyond what is set aside walks what it deletes": Case(
        "retention.delete_slice", {**SLICED, "after": ASIDES}, 2 * SLICE + 3 * PLACES, 8 * SLICE
    ),
    "slice of ticks walks one message of each": Case(
        "retention.delete_ticks",
        {**EXPIRY, "first": 1, "reached": MESSAGES, "after": 0, "limit": 100},
        2 * 100 + 2 * PLACES + 10,
    ),
    "no message of ticks beyond what was cleaned is looked for": Case(
        "retention.delete_ticks",
        {**EXPIRY, "first": 1, "reached": 10 * PER_TICK, "after": 0, "limit": 400},
        400 + 10 + 2 * PLACES + 10,
    ),
    # Half a million are unread, by 816 spans that all stand at the same place.
    "lag of all groups looks at a limited number of messages": Case(
        "position.lag",
        {"group": None, "uri": None, "most": 2000, "least": 200},
        2000 + 2 * (MESSAGES - MIDDLE) // PER_TICK + PLACES + 100,
        2000,
        (ge, {"pkey", "ticks_pkey"}),
    ),
    # Ten halvings of a thousand ticks, with eight of them looked at each time.
    "tick of a position is guessed without walking all ticks": Case(
        "position.guess_tick", {"position": 1500}, 10 * 8 + 20, scans=(ge, {"ticks_pkey"})
    ),
    "place of a position is found among the ticks that were guessed": Case(
        "position.place_of", {"position": 1500, "first": 1, "end": 65}, 64, scans=(eq, {"ticks_pkey"})
    ),
    "page of what a group has set aside walks the page": Case(
        "deferred.list_deferred_of_group", PAGE, 110, scans=(eq, {"deferred_pkey", "pkey"})
    ),
    "page of what is set aside walks the page": Case(
        "deferred.list_deferred", PAGE, 110, scans=(eq, {"deferred_pkey", "pkey"})
    ),
    "list of groups counts what waits up to a limit": Case(
        "group_admin.list_groups", {"group": None, "uri": None, "most": 500}, 4 * PLACES + 4 * 500 + 100
    ),
    "census does not count what is parked": Case(
        "group.census", {"groups": ["parked"], "uris": [""], "holds": [False]}, 5, scans=(ge, {"deferred_wait_idx"})
    ),
    "numbers of the log are two descents": Case("doctor_log.numbers", {}, 3),
    "idle groups are read from their places alone": Case("doctor_log.idle_groups", {"seconds": 1.0}, PLACES + 10),
    "forgotten pauses are read from places of groups alone": Case(
        "doctor_log.forgotten_group_pauses", {"seconds": 1.0}, PLACES + 10
    ),
    # Three groups have five thousand keys each with something deferred, and one has twenty thousand parked.
    "parked heads look at the first messages of so many keys": Case(
        "doctor_log.parked_heads",
        {"seconds": 0.0, "most": MOST},
        4 * MOST + 20 * 1000,
        scans=(le, {"deferred_wait_idx", "deferred_key_idx"}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_question_reads_no_more_than_it_needs(million: Million, mode: PlanMode, name: str) -> None:
    million.check(CASES[name], mode)


@pytest.fixture
def restored(million: Million) -> Iterator[Million]:
    """As autovacuum leaves a log that was restored: it has seen to the messages, and not to the few ticks."""
    million.execute("delete from pg_statistic where starelid = '{ticks}'::regclass")
    million.execute("update pg_class set reltuples = -1, relpages = 0 where oid = '{ticks}'::regclass")
    yield million
    million.execute("analyze {ticks}")


def test_repair_walks_the_messages_of_its_ticks_whatever_the_planner_knows(restored: Million, mode: PlanMode) -> None:
    restored.execute("set statement_timeout = '30s'")
    cost = restored.cost("tick.kept", {"tick": 0, "limit": 10 * PER_TICK}, mode)
    restored.execute("reset statement_timeout")
    assert cost.walked <= 10 * PER_TICK + 1000
