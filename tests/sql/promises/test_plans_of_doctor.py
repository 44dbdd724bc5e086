"""What the doctor asks of queues keeps its indexes and its cost, with half a million messages."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import URL

from faststream_outbox._internal.sql.statements import statements
from tests.publish.ways import plain
from tests.sql.plans import WIRE, Plan, PlanMode, explained, of_all
from tests.sql.states import State, crowded

pytestmark = pytest.mark.slow

LETTERS = 100_000
DESCENTS = 8
"""Pages of one descent, and of the row that it leads to."""


@pytest.fixture(scope="module")
def state(database_url: URL) -> Iterator[State]:
    """Every third of the keys that have dead letters has messages that wait."""
    with crowded(plain(database_url)) as state:
        dead = (
            f"insert into {state.names.dead} (original_id, message_id, queue, payload, created_at, failed_at,"
            " failure_reason, key)"
            " select n, gen_random_uuid(), case when n % 5 = 0 then 'ledger' else 'q' || n % 50 end, '', now(),"
            " now() - n * interval '1 second', 'rejected', 'k' || lpad((n % 5000)::text, 4, '0')"
            f" from generate_series(1, {LETTERS}) n"
        )
        state.execute(dead)
        state.execute(f"analyze {state.names.dead}")
        yield state


def cost(state: State, name: str, values: Mapping[str, Any], mode: PlanMode) -> Plan:
    """What a statement costs on a connection of the library's."""
    return of_all(explained(state.connection, statements("doctor_queue", state.names)[name], values, mode, WIRE))


@pytest.mark.parametrize("name", ["ids", "dead_ids"])
def test_highest_id_is_one_descent(name: str, state: State, mode: PlanMode) -> None:
    table = state.names.table if name == "ids" else state.names.dead
    asked = cost(state, name, {"table": table}, mode)
    assert asked.walked <= 2


def test_oldest_ready_message_is_a_few_descents_for_each_lane(state: State, mode: PlanMode) -> None:
    """Of about sixty lanes one is leased throughout, and one has the heads of its keys leased."""
    asked = cost(state, "ready", {"seconds": 1.0, "most": 1000}, mode)
    assert asked.walked <= 60 * 6 + 3 * 1000
    assert asked.buffers <= DESCENTS * asked.walked + 2000


def test_pauses_are_found_by_their_queue(state: State, mode: PlanMode) -> None:
    asked = cost(state, "forgotten_pauses", {"seconds": 1.0}, mode)
    assert asked.walked <= 10


def test_held_keys_look_at_the_first_messages_of_so_many_keys(state: State, mode: PlanMode) -> None:
    most = 300
    asked = cost(state, "held_keys", {"seconds": 1.0, "most": most}, mode)
    assert asked.walked <= most * (1 + 10 + 10 + 1) + 20 * (2 * 1000 + 10)
    assert asked.buffers <= DESCENTS * asked.walked + 2000


def test_recent_dead_letters_are_counted_up_to_a_limit(state: State, mode: PlanMode) -> None:
    asked = cost(state, "recent_dead", {"most": 200, "counted": 100, "letters": 10}, mode)
    assert asked.walked <= 51 * (100 + 3)
