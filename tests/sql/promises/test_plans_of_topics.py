"""What the overview asks about topics keeps its index and its cost: a million parked messages, very many gaps."""

from collections.abc import Iterator
from operator import le

import psycopg
import pytest

from faststream_outbox._internal.overview.topics import KEYS, LEAST_COUNTED, LEAST_KEYS, MOST_COUNTED
from tests.sql.million import GROUPS, MESSAGES, PER_TICK, SPANS, Case, Million
from tests.sql.plans import PlanMode

pytestmark = pytest.mark.slow

PARKED = 1_000_000
BLOCKED = 5
ASKED = {"limit": 100, "keys": KEYS, "least_keys": LEAST_KEYS, "most": MOST_COUNTED, "least": LEAST_COUNTED}
OF_KEYS = {"deferred_wait_idx", "deferred_key_idx", "deferred_pkey"}
CASES = {
    "blocked keys of a group that has parked a million cost what they are": Case(
        "overview_log.blocked_keys", {**ASKED, "group": "lots"}, 10 * BLOCKED + 10, 400, (le, OF_KEYS)
    ),
    # Three groups have five thousand keys each, with four messages each.
    "blocked keys of all groups are looked at up to a limit": Case(
        "overview_log.blocked_keys", {**ASKED, "group": None}, 10 * KEYS, scans=(le, OF_KEYS)
    ),
    "fewer blocked keys cost less": Case(
        "overview_log.blocked_keys", {**ASKED, "group": None, "keys": 50, "least_keys": 10}, 10 * 60
    ),
    # One has a place and much deferred, one a million parked and no place, and one nobody has heard of.
    "age of what groups have not relayed is found among a few": Case(
        "overview_log.oldest_of_groups",
        {"groups": ["g", "lots", "nobody"], "uris": ["", "", "quiet"], "limit": 1000},
        2 * 1000 + 2 * 1000 + 20,
        scans=(le, {"deferred_wait_idx", "pkey", "offsets_pkey"}),
    ),
}


@pytest.fixture(scope="module")
def parked(million: Million) -> Million:
    """With a group that has parked a million messages, of keys of which a few have something that waits."""
    million.execute(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        f"select 'lots', '', n, n / {PER_TICK} + 1, n % 256, 'orders/' || n % 5000, "
        f"case when n % 5000 < {BLOCKED} and n > {PARKED} - 10000 then 'deferred' else 'parked' end "
        f"from generate_series(1, {PARKED}) n"
    )
    million.execute("analyze {deferred}")
    return million


@pytest.mark.parametrize("name", CASES)
def test_question_reads_no_more_than_it_needs(parked: Million, mode: PlanMode, name: str) -> None:
    parked.check(CASES[name], mode)


@pytest.fixture
def gaps(parked: Million) -> Iterator[Million]:
    """Numbers that were rolled back long ago, and kept because a transaction is open that has drawn one."""
    with psycopg.connect(parked.dsn) as owner:
        owner.execute("select pg_current_xact_id()")
        parked.execute(
            "insert into {gap_table} (bound, lo, lows, highs, since) "
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + g, g * 1000, "
            "array(select generate_series(g * 1000, g * 1000 + 998, 2)), "
            "array(select generate_series(g * 1000, g * 1000 + 998, 2)), now() from generate_series(1, 200) g"
        )
        parked.execute("analyze {gap_table}")
        owner.execute(f"select nextval('{parked.names.places()['sequence_name']}')".encode())
        yield parked
        owner.rollback()
    parked.execute("delete from {gap_table}")


def test_oldest_gaps_are_found_without_walking_all(gaps: Million, mode: PlanMode) -> None:
    cost = gaps.cost("overview_log.open_gaps", {"age": 0.0, "limit": 100, "drawn": MESSAGES}, mode)
    scans = {scan for scan in cost.scans if scan.startswith("million")}
    assert scans <= {"million_gaps_pkey", "million_head_pkey", "million_pkey"}
    assert cost.buffers <= 1500


def test_lag_of_what_nobody_has_sequenced_is_counted_up_to_a_limit(parked: Million, mode: PlanMode) -> None:
    """As after an hour in which nobody has read: half of the log is in no tick."""
    walked = 2 * 2000 + 2 * (MESSAGES // 2) // PER_TICK + GROUPS * SPANS + 200
    with parked.sequenced_up_to(MESSAGES // 2):
        parked.check(Case("position.lag", {"group": None, "uri": None, "most": 2000, "least": 200}, walked, 4000), mode)
