"""Every hot statement of the log keeps its index and its cost at a million messages.

Looks at the plan's scans, at the rows that it walked and at the pages that it touched, which do not depend
on the machine; asked as a long-lived connection would ask, with custom and with generic plans.
"""

from operator import eq, ge, le
from typing import Any

import psycopg
import pytest

from faststream_outbox._internal.log.sharing.slots import as_filters
from tests.sql.million import ASIDES, GROUPS, ME, MESSAGES, MIDDLE, PER_TICK, SPANS, STAMP, Case, Million
from tests.sql.plans import PlanMode

pytestmark = pytest.mark.slow

GROUP = {"group": "g", "uri": ""}
TICK = {"limit": 10_000, "islands": 1_000, "ranges": 20_000, "sweep": 1_000, "channel": "nobody", "place": "here:"}
EVERYTHING, SOME_SLOTS = as_filters({"": 2**256 - 1}), as_filters({"orders": 2**16 - 1})
OF_MANY_MEMBERS = as_filters({f"quiet/{number}": 2**256 - 1 for number in range(100)} | {"orders": 2**16 - 1})
"""What all who wait want together: most of it is not there."""


def window(positions: int) -> dict[str, Any]:
    first = MIDDLE // PER_TICK + 1
    ticks = -(-positions // PER_TICK)
    los = [(first + n - 1) * PER_TICK + 1 for n in range(ticks)]
    return {
        "bytes": 2**23,
        "unreadable": [],
        "ticks": [first + n for n in range(ticks)],
        "los": los,
        "his": [lo + min(positions, PER_TICK) - 1 for lo in los],
    }


def cursors() -> dict[str, Any]:
    los = [span * 16 for span in range(SPANS)]
    same = [MIDDLE // PER_TICK] * SPANS
    # Whatever of these a statement does not name is left out.
    return {
        **GROUP, "me": ME, "ttl": 15.0, "release": False, "los": los, "epochs": [1] * SPANS,
        "ticks": [value + 1 for value in same], "positions": [MIDDLE + 1000] * SPANS,
        "stamps": [STAMP] * SPANS, "from_ticks": same, "from_positions": [MIDDLE] * SPANS, "again": False,
    }  # fmt: skip


def deferrals(count: int) -> dict[str, Any]:
    return {
        "deferred_positions": [MIDDLE + n for n in range(count)],
        "deferred_ticks": [MIDDLE // PER_TICK] * count,
        "deferred_slots": [n % 256 for n in range(count)],
        "deferred_keys": [f"orders/{n}" for n in range(count)],
        "deferred_states": ["retry"] * count,
        "deferred_attempts": [1] * count,
        "deferred_delays": [1.0] * count,
        "deferred_types": [None] * count,
        "deferred_messages": [None] * count,
        "deferred_tracebacks": [None] * count,
    }


def members(count: int = GROUPS) -> dict[str, Any]:
    """Spans of some members, each of another group, that have read the same."""
    names = ["g" + (str(number) if number else "") for number in range(count)]
    same: dict[str, Any] = {"groups": names, "uris": [""] * count, "owners": [ME] * count, "members": [ME] * count}
    moves = {
        "ticks": [MIDDLE // PER_TICK + 1] * count, "positions": [MIDDLE + 1000] * count, "stamps": [STAMP] * count,
        "from_ticks": [MIDDLE // PER_TICK] * count, "from_positions": [MIDDLE] * count,
    }  # fmt: skip
    return {**same, **moves, "los": [16] * count, "epochs": [1] * count, "ttls": [15.0] * count}


CHANGES = ("positions", "states", "attempts", "delays", "types", "messages", "tracebacks")
SETTLED = {**cursors(), **{name: [] for name in CHANGES}, "done": [*range(1, 51)]}
QUIET = {"groups": [f"quiet {number}" for number in range(100)], "uris": [""] * 100, "holds": [False] * 100}
ALL_SLOTS, SOME = {"los": [0], "his": [255]}, {"los": [16, 64], "his": [31, 79]}
WAITING = {"keys": ["k"], "slots": [1], "limit": 100, "unreadable": []}
OF_KEYS = {"keys": [f"orders/{n}" for n in range(10)], "limit": 100, "unreadable": []}
PLACES = {"offsets_pkey", "ticks_pkey"}

CASES = {
    "fetch of everything walks what it returns": Case(
        "log.fetch", {**window(100), **EVERYTHING, "limit": 100}, 101, 30, (eq, {"pkey"})
    ),
    "fetch of some slots walks its window": Case(
        "log.fetch", {**window(1600), **SOME_SLOTS, "limit": 100}, 2000, 120, (eq, {"pkey"})
    ),
    "fetch stops at its limit": Case("log.fetch", {**window(20_000), **EVERYTHING, "limit": 100}, 2 * PER_TICK),
    "fetch for many members walks its window once": Case(
        "log.fetch", {**window(1000), **OF_MANY_MEMBERS, "limit": 500}, 1001, 60, (eq, {"pkey"})
    ),
    "ticks after a place": Case(
        "log.ticks_after", {"tick": 500, "limit": 200, "positions": 100_000}, 201, scans=(eq, {"ticks_pkey"})
    ),
    "look touches a row or two": Case("tick.progress", TICK, 4, 16),
    "tick of nothing new costs the same at any size": Case("tick.tick", TICK, 20, 60),
    "moving cursors walks those of the group": Case(
        "group.move", cursors(), 2 * SPANS * SPANS, 25 * SPANS, (eq, PLACES)
    ),
    "advancing with messages set aside walks no others": Case(
        "group.advance", {**cursors(), **deferrals(50)}, 3 * SPANS * SPANS, 25 * SPANS + 30 * 50, (le, PLACES)
    ),
    "question where cursors stand walks those of the group": Case(
        "group.spans_still_ours", cursors(), 3 * SPANS * SPANS, scans=(eq, {"offsets_pkey"})
    ),
    "question which messages are set aside walks those only": Case(
        "group.still_deferred", {**GROUP, "positions": [*range(1, 51)]}, 50, scans=(eq, {"deferred_pkey"})
    ),
    "blocked keys are found in their group": Case(
        "deferred.blocked", {**GROUP, **ALL_SLOTS}, ASIDES + 1, scans=(eq, {"deferred_wait_idx"})
    ),
    "blocked keys of some slots are found there": Case(
        "deferred.blocked", {**GROUP, **SOME}, ASIDES * 32 // 256 + 100, scans=(eq, {"deferred_wait_idx"})
    ),
    "blocked keys with parked ones are found in their group": Case(
        "deferred.blocked_or_parked",
        {**GROUP, **ALL_SLOTS},
        ASIDES + 1,
        scans=(le, {"deferred_key_idx", "deferred_pkey"}),
    ),
    "blocked keys of a group without any cost nothing": Case(
        "deferred.blocked", {**GROUP, **ALL_SLOTS, "group": "nothing waits here"}, 0, 10
    ),
    "the one that waits under the key of all that are parked is found": Case(
        "deferred.fetch_waiting", {**GROUP, **WAITING, "group": "parked"}, 4, scans=(eq, {"deferred_wait_idx", "pkey"})
    ),
    "parked messages cost nothing where they block nothing": Case(
        "deferred.blocked", {**GROUP, **ALL_SLOTS, "group": "parked"}, 4, 20
    ),
    "messages that wait under some keys are found by key": Case(
        "deferred.fetch_deferred", {**GROUP, **OF_KEYS}, 2 * 10 * 4 + 10, scans=(eq, {"deferred_key_idx", "pkey"})
    ),
    "settling messages that waited walks those only": Case(
        "deferred.settle_deferred",
        SETTLED,
        3 * SPANS * SPANS + 50 * SPANS,
        scans=(le, {"deferred_pkey", "offsets_pkey"}),
    ),
    "heartbeat walks members of the group": Case("group.heartbeat", {**GROUP, "me": ME, "ttl": 15.0}, pages=20),
    "spans of many members are moved one by one": Case(
        "group.move_each", members(), 5 * GROUPS, 30 * GROUPS, (le, PLACES)
    ),
    "spans of many members are renewed one by one": Case(
        "group.renew_each", members(), 5 * GROUPS, 30 * GROUPS, (le, PLACES)
    ),
    "look at many groups walks theirs only": Case(
        "group.spans_of_groups", members(20), 20 * SPANS, scans=(eq, {"offsets_pkey"})
    ),
    "census of quiet groups walks nothing": Case("group.census", QUIET, 0, 100 * 12),
    "unread of a token does not walk the log": Case(
        "position.unread", {**GROUP, "positions": [MESSAGES - 1, MESSAGES]}, 2 * (MESSAGES // PER_TICK) + 100
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_statement_reads_no_more_than_it_needs(million: Million, mode: PlanMode, name: str) -> None:
    million.check(CASES[name], mode)


def test_tick_of_a_thousand_walks_a_thousand(million: Million, mode: PlanMode) -> None:
    with million.sequenced_up_to(MESSAGES - 1000):
        million.check(Case("tick.tick", TICK, 1020, scans=(ge, {"pkey"})), mode)


def test_place_of_a_transaction_does_not_join_the_log_with_the_ticks(million: Million) -> None:
    case = Case("position.place_of_pair", {"transaction_id": 0, "offset": 0}, 3 * PER_TICK)
    million.check(case, "force_custom_plan")


def test_look_does_not_walk_over_what_an_open_transaction_has_published(million: Million, mode: PlanMode) -> None:
    """A publisher of very many messages that takes its time must not make every look of every process long."""
    with psycopg.connect(million.dsn) as publisher:
        publisher.execute(
            "insert into million (position, uri, slot, payload, metadata, created_at, transaction_id) "
            "select nextval('million_head_drawn_seq'), 'k', 1, '1', '{}', now(), 1 from generate_series(1, 20000)"
        )
        million.check(Case("tick.progress", TICK, pages=100), mode)
        publisher.rollback()
