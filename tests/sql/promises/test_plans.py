"""Every hot statement keeps its index and its cost, whatever the planner thinks of the table.

In three states that mislead it: see `states`. A guard looks at the plan's scans and at the pages that it
touched, which do not depend on the machine.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.publish.ways import plain
from tests.sql.asked import SLOW, STEADY, Question, questions, rounds
from tests.sql.plans import Plan, PlanMode, Plans
from tests.sql.states import State, churned, crowded, young

pytestmark = pytest.mark.slow

DESCENTS = 60
"""Pages of a statement that returns nothing: descents into a few indexes, for a few lanes."""
PAGES_PER_ROW = 20
"""Pages touched for a row: found, locked, written, and put into five indexes where its due time changes."""
PAGES_PER_DEAD_ENTRY = 2
LOOKS_PER_ROW = 3
"""A row is found by an index, locked by its place, and written by its place."""
SAMPLE = 100
LANES = 4
"""Orders of two priorities, the ledger's keys, and held messages."""


@pytest.fixture(scope="module", params=[young, churned, crowded], ids=lambda build: build.__name__)
def state(request: pytest.FixtureRequest, database_url: URL) -> Iterator[State]:
    with request.param(plain(database_url)) as state:
        yield state


def ask(state: State, found: Iterator[Question], name: str, mode: PlanMode) -> tuple[Question, Plan]:
    question = next(question for question in found if question.name == name)
    return question, Plans(state.connection, state.names).of(question.file, name, question.values, mode)


@pytest.mark.parametrize("name", STEADY)
def test_steady_statement_keeps_its_indexes_and_its_cost(state: State, name: str, mode: PlanMode) -> None:
    question, plan = ask(state, questions(state), name, mode)
    assert plan.scans <= question.indexes, str(plan)
    assert plan.walked <= LOOKS_PER_ROW * question.rows, f"looks at rows that it may not return: {plan}"
    assert plan.buffers <= DESCENTS + PAGES_PER_ROW * question.rows, f"touches too many pages: {plan}"


@pytest.mark.parametrize("name", SLOW)
def test_look_from_the_beginning_walks_dead_entries_once_and_nothing_else_in_vain(
    state: State, name: str, mode: PlanMode
) -> None:
    question, plan = ask(state, rounds(state), name, mode)
    assert plan.scans <= question.indexes, str(plan)
    assert plan.walked <= LOOKS_PER_ROW * question.rows, f"looks at rows that it does not need: {plan}"
    underfoot = PAGES_PER_DEAD_ENTRY * state.dead_entries
    assert plan.buffers <= DESCENTS + PAGES_PER_ROW * question.rows + underfoot, f"touches too many pages: {plan}"


def test_oldest_message_of_each_queue_is_found_at_the_front_of_its_lanes(state: State, mode: PlanMode) -> None:
    values = {"queues": ["orders", "ledger", "held", "nobody"], "limit": SAMPLE}
    off = ("enable_seqscan", "enable_bitmapscan")
    plan = Plans(state.connection, state.names).of("relay", "oldest_of_queues", values, mode, off)
    table = state.names.table
    assert plan.scans <= {f"{table}_claim_idx", f"{table}_key_due_idx"}, str(plan)
    assert plan.walked <= LANES * SAMPLE + 40, str(plan)
    assert plan.buffers <= 4 * LANES * SAMPLE + 200 + 3 * state.dead_entries, str(plan)
