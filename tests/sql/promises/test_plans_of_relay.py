"""How old what is not relayed is costs a few descents, whatever is in the table."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL

from tests.sql.plans import PlanMode, Plans
from tests.sql.states import State, churned, crowded, young

pytestmark = pytest.mark.slow

MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")
SAMPLE = 100
LANES = 4
"""Orders of two priorities, the ledger's keys, and held messages."""


@pytest.fixture(scope="module", params=[young, churned, crowded], ids=lambda build: build.__name__)
def state(request: pytest.FixtureRequest, database_url: URL) -> Iterator[State]:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with request.param(dsn) as state:
        yield state


@pytest.mark.parametrize("mode", MODES)
def test_oldest_message_of_each_queue_is_found_at_the_front_of_its_lanes(state: State, mode: PlanMode) -> None:
    # As on the library's own connection.
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        state.execute(f"set {setting} = off")
    values = {"queues": ["orders", "ledger", "held", "nobody"], "limit": SAMPLE}
    plan = Plans(state.connection, state.names).of("relay", "oldest_of_queues", values, mode)
    table = state.names.table
    assert plan.scans <= {f"{table}_claim_idx", f"{table}_key_due_idx"}, str(plan)
    assert plan.walked <= LANES * SAMPLE + 40, str(plan)
    assert plan.buffers <= 4 * LANES * SAMPLE + 200 + 3 * state.dead_entries, str(plan)
