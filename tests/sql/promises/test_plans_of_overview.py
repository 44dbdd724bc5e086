"""Questions read what they show and little more: a million messages of one queue cost the others nothing.

With and without statistics, with a plan for the values and with one for any; see `states.skewed`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from sqlalchemy import URL

from faststream_outbox._internal.overview.message import BEHIND_ALL, MOST_GROUPED, SLICE
from faststream_outbox._internal.overview.queues import BUDGET, MOST, share
from tests.publish.ways import plain
from tests.sql.plans import MODES, PlanMode, Plans, nodes
from tests.sql.states import BIG, SMALL_QUEUES, State, churned, skewed

pytestmark = pytest.mark.slow

QUEUES = ["big", *(f"small{number}" for number in range(SMALL_QUEUES))]
LANES: dict[str, Any] = {
    "queues": ["big", *QUEUES],
    "keyed": [True] + [False] * len(QUEUES),
    "priorities": [0] * (len(QUEUES) + 1),
}
SHARE = share(len(LANES["queues"]))
ROWS = 10 * SMALL_QUEUES + 4 * SHARE
"""What all lanes have, of those that are due, due later and set apart, up to their shares."""
ALONE: dict[str, Any] = {"queues": ["big"], "keyed": [False], "priorities": [0]}
TTL = {"ttl": 60.0}
DESCENT = 12
"""Pages of one descent into an index and to a row, with room."""
PAGES_PER_ROW = 2


class Case(NamedTuple):
    """A statement with its values, the indexes that it may use, and what it may read."""

    file: str
    statement: str
    values: dict[str, Any]
    indexes: set[str]
    rows: int
    descents: int


DUE = {"claim_idx", "key_due_idx"}
NAMED = {*DUE, "timer_id_uq"}
OF_KEYS = {"pkey", "timer_id_uq", "key_idx", "later_idx", "waiting_idx"}
NEW = {"before": BEHIND_ALL, "slice": SLICE, "message_id": uuid4()}
SORTED = TTL | {"most": MOST, "limit": 100}
CASES = {
    "names": Case("control", "queues", {"limit": 10_000}, NAMED, 600, 1100),
    "one name": Case("control", "known_queue", {"queue": "big"}, NAMED, 4, 4),
    "survey": Case("scan", "survey", {"queues": QUEUES}, DUE, 600, 2200),
    "all lanes": Case("overview", "count_lanes", LANES | TTL | {"most": SHARE + 1}, DUE, ROWS, 3200),
    "one lane": Case("overview", "count_lanes", ALONE | TTL | {"most": MOST}, DUE, 2 * MOST, 10),
    "holders": Case("overview", "holders", LANES | TTL | {"most": SHARE}, DUE, ROWS, 600),
    "message": Case("overview", "message_by_id", {"id": BIG // 2} | TTL, OF_KEYS, 3, 10),
    "search": Case("overview", "search_messages", NEW, {"pkey"}, SLICE, 10),
    "timers": Case("overview", "timers", SORTED, {"timer_id_uq"}, MOST, 10),
    "timers of one": Case("overview", "timers_of_queue", SORTED | {"queue": "big"}, {"timer_id_uq"}, MOST, 10),
    "timers of lanes": Case(
        "overview", "timers_of_lanes", LANES | TTL | {"most": SHARE, "limit": 100}, DUE, ROWS, 1200
    ),
}
OF_THE_DEAD: dict[str, tuple[str, dict[str, Any], int, int]] = {
    # name: statement, values, rows, descents
    "dead": ("count_dead", {"queues": QUEUES, "most": SHARE + 1}, 3000 + SHARE, 600),
    "groups": ("group_newest_dead", {"most": MOST_GROUPED}, MOST_GROUPED, 10),
    "search": ("search_dead", {"before": BEHIND_ALL, "slice": SLICE, "message_id": None, "original_id": 1}, SLICE, 10),
}


@pytest.fixture(scope="module")
def state(database_url: URL) -> Iterator[State]:
    with skewed(plain(database_url)) as state:
        # As the connection that questions are asked on has it, behind a pooler too.
        state.execute("set enable_seqscan = off; set enable_bitmapscan = off; set jit = off")
        yield state


@pytest.fixture(scope="module", params=["without statistics", "analysed"])
def known(request: pytest.FixtureRequest, state: State) -> State:
    if request.param == "analysed":
        state.execute("vacuum (analyze) {t}")
        state.execute(f"vacuum (analyze) {state.names.dead}")
    return state


@pytest.mark.parametrize("name", CASES)
def test_question_reads_no_more_than_its_share(known: State, name: str, mode: PlanMode) -> None:
    file, statement, values, indexes, rows, descents = CASES[name]
    plan = Plans(known.connection, known.names).of(file, statement, values, mode)
    of_the_dead = {"Index Scan", "Index Only Scan"}
    assert plan.scans <= {f"{known.names.table}_{index}" for index in indexes} | of_the_dead, str(plan)
    assert plan.walked <= rows + 10, f"looks at rows that it does not need: {plan}"
    assert plan.buffers <= DESCENT * descents + PAGES_PER_ROW * rows, f"touches too many pages: {plan}"


@pytest.mark.parametrize("name", OF_THE_DEAD)
def test_question_about_dead_letters_reads_no_more_than_its_share(known: State, name: str, mode: PlanMode) -> None:
    statement, values, rows, descents = OF_THE_DEAD[name]
    plan = Plans(known.connection, known.names).of("overview", statement, values, mode)
    assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan.tree)}, str(plan)
    assert plan.buffers <= DESCENT * descents + PAGES_PER_ROW * rows, f"touches too many pages: {plan}"


def test_budget_of_all_lanes_is_a_part_of_the_table() -> None:
    assert len(LANES["queues"]) * SHARE <= BUDGET < BIG


def test_dead_entries_that_a_snapshot_keeps_are_walked_once_by_each_statement(database_url: URL) -> None:
    """They cannot be passed over: nobody knows where the living begin."""
    with churned(plain(database_url)) as state:
        plans = Plans(state.connection, state.names)
        lanes = {"queues": ["orders", "ledger", "held"], "keyed": [False, True, False], "priorities": [0, 0, 0]}
        for file, name, values in (
            ("control", "queues", {"limit": 10_000}),
            ("scan", "survey", {"queues": ["orders", "ledger", "held"]}),
            ("overview", "count_lanes", lanes | TTL | {"most": MOST}),
        ):
            for mode in MODES:
                plan = plans.of(file, name, values, mode)
                assert plan.buffers <= 30_000 + 3 * state.dead_entries, str(plan)
