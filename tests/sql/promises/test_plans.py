"""Every hot statement keeps its index and its cost, whatever the planner thinks of the table.

In three states that mislead it: see `states`. A guard looks at the plan's scans and at the pages that it
touched, which do not depend on the machine.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.sql.asked import SLOW, STEADY, Question, questions, rounds
from tests.sql.plans import Plan, PlanMode, Plans
from tests.sql.states import State, churned, crowded, young

pytestmark = pytest.mark.slow

MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")

DESCENTS = 60
"""Pages of a statement that returns nothing: descents into a few indexes, for a few lanes."""
PAGES_PER_ROW = 20
"""Pages touched for a row: found, locked, written, and put into five indexes where its due time changes."""
PAGES_PER_DEAD_ENTRY = 2
LOOKS_PER_ROW = 3
"""A row is found by an index, locked by its place, and written by its place."""


@pytest.fixture(scope="module", params=[young, churned, crowded], ids=lambda build: build.__name__)
def state(request: pytest.FixtureRequest, database_url: URL) -> Iterator[State]:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with request.param(dsn) as state:
        yield state


def ask(state: State, question: Question, mode: PlanMode) -> Plan:
    return Plans(state.connection, state.names).of(question.file, question.name, question.values, mode)


def named(found: Iterator[Question], name: str) -> Question:
    return next(question for question in found if question.name == name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STEADY)
def test_steady_statement_keeps_its_indexes_and_its_cost(state: State, name: str, mode: PlanMode) -> None:
    question = named(questions(state), name)
    plan = ask(state, question, mode)
    assert plan.scans <= question.indexes, str(plan)
    assert plan.walked <= LOOKS_PER_ROW * question.rows, f"looks at rows that it may not return: {plan}"
    assert plan.buffers <= DESCENTS + PAGES_PER_ROW * question.rows, f"touches too many pages: {plan}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SLOW)
def test_look_from_the_beginning_walks_dead_entries_once_and_nothing_else_in_vain(
    state: State, name: str, mode: PlanMode
) -> None:
    question = named(rounds(state), name)
    plan = ask(state, question, mode)
    assert plan.scans <= question.indexes, str(plan)
    assert plan.walked <= LOOKS_PER_ROW * question.rows, f"looks at rows that it does not need: {plan}"
    underfoot = PAGES_PER_DEAD_ENTRY * state.dead_entries
    assert plan.buffers <= DESCENTS + PAGES_PER_ROW * question.rows + underfoot, f"touches too many pages: {plan}"
