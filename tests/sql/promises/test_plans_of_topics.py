"""What the overview asks about topics keeps its index and its cost: a million parked messages, very many gaps."""

from collections.abc import Iterator

import psycopg
import pytest

from faststream_outbox._internal.overview.topics import KEYS, LEAST_COUNTED, LEAST_KEYS, MOST_COUNTED
from tests.sql.plans import PlanMode
from tests.sql.promises.test_plans_of_log import MESSAGES, PER_TICK, Million, mode
from tests.sql.promises.test_plans_of_log import million as million_messages

__all__ = ["million_messages", "mode"]
pytestmark = pytest.mark.slow

PARKED = 1_000_000
BLOCKED = 5
ASKED = {"limit": 100, "keys": KEYS, "least_keys": LEAST_KEYS, "most": MOST_COUNTED, "least": LEAST_COUNTED}
GAPS = {"age": 0.0, "limit": 100, "drawn": MESSAGES}


@pytest.fixture(scope="module")
def million(million_messages: Million) -> Million:
    """With a group that has parked a million messages, of keys of which a few have something that waits."""
    million_messages.execute(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        f"select 'lots', '', n, n / {PER_TICK} + 1, n % 256, 'orders/' || n % 5000, "
        f"case when n % 5000 < {BLOCKED} and n > {PARKED} - 10000 then 'deferred' else 'parked' end "
        f"from generate_series(1, {PARKED}) n"
    )
    million_messages.execute("analyze {deferred}")
    return million_messages


def test_blocked_keys_of_a_group_that_has_parked_a_million_cost_what_they_are(million: Million, mode: PlanMode) -> None:
    cost = million.cost("overview_log", "blocked_keys", {**ASKED, "group": "lots"}, mode)
    assert cost.scans <= {"million_deferred_wait_idx", "million_deferred_key_idx", "million_deferred_pkey"}
    assert cost.walked <= 10 * BLOCKED + 10
    assert cost.buffers <= 400


def test_blocked_keys_of_all_groups_are_looked_at_up_to_a_limit(million: Million, mode: PlanMode) -> None:
    """Three groups have five thousand keys each, with four messages each."""
    cost = million.cost("overview_log", "blocked_keys", {**ASKED, "group": None}, mode)
    assert cost.scans <= {"million_deferred_wait_idx", "million_deferred_key_idx", "million_deferred_pkey"}
    assert cost.walked <= 10 * KEYS
    few = million.cost("overview_log", "blocked_keys", {**ASKED, "group": None, "keys": 50, "least_keys": 10}, mode)
    assert few.walked <= 10 * 60


@pytest.fixture
def gaps(million: Million) -> Iterator[None]:
    """Numbers that were rolled back long ago, and kept because a transaction is open that has drawn one."""
    with psycopg.connect(million.dsn) as owner:
        owner.execute("select pg_current_xact_id()")
        million.execute(
            "insert into {gap_table} (bound, lo, lows, highs, since) "
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + g, g * 1000, "
            "array(select generate_series(g * 1000, g * 1000 + 998, 2)), "
            "array(select generate_series(g * 1000, g * 1000 + 998, 2)), now() from generate_series(1, 200) g"
        )
        million.execute("analyze {gap_table}")
        owner.execute(f"select nextval('{million.names.places()['sequence_name']}')")  # type: ignore[arg-type]  # a name
        yield
        owner.rollback()
    million.execute("delete from {gap_table}")


@pytest.mark.usefixtures("gaps")
def test_oldest_gaps_are_found_without_walking_all(million: Million, mode: PlanMode) -> None:
    cost = million.cost("overview_log", "open_gaps", GAPS, mode)
    assert {scan for scan in cost.scans if scan.startswith("million")} <= {
        "million_gaps_pkey",
        "million_head_pkey",
        "million_pkey",
    }
    assert cost.buffers <= 1500


def test_lag_of_what_nobody_has_sequenced_is_counted_up_to_a_limit(million: Million, mode: PlanMode) -> None:
    """As after an hour in which nobody has read: half of the log is in no tick."""
    million.execute(f"update {{head_table}} set high = {MESSAGES // 2}")
    try:
        cost = million.cost("position", "lag", {"group": None, "uri": None, "most": 2000, "least": 200}, mode)
    finally:
        million.execute(f"update {{head_table}} set high = {MESSAGES}")
    assert cost.buffers <= 4000
    assert cost.walked <= 2 * 2000 + 2 * (MESSAGES // 2) // PER_TICK + 51 * 16 + 200


def test_age_of_what_groups_have_not_relayed_is_found_among_a_few(million: Million, mode: PlanMode) -> None:
    """One has a place and much deferred, one a million parked and no place, and one nobody has heard of."""
    values = {"groups": ["g", "lots", "nobody"], "uris": ["", "", "quiet"], "limit": 1000}
    cost = million.cost("overview_log", "oldest_of_groups", values, mode)
    assert cost.scans <= {"million_deferred_wait_idx", "million_pkey", "million_offsets_pkey"}
    assert cost.walked <= 2 * 1000 + 2 * 1000 + 20
