"""What the doctor asks keeps its indexes and its cost, with half a million messages and a million in the log."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import URL

from faststream_outbox._internal.sql.statements import statements
from tests.sql.plans import PlanMode
from tests.sql.promises.test_plans_of_log import SPANS, WIRE, Cost, Million, million, mode, read
from tests.sql.states import State, crowded

__all__ = ["million", "mode"]
pytestmark = pytest.mark.slow

LETTERS = 100_000
DESCENTS = 8
"""Pages of one descent, and of the row that it leads to."""


@pytest.fixture(scope="module")
def state(database_url: URL) -> Iterator[State]:
    """Every third of the keys that have dead letters has messages that wait."""
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with crowded(dsn) as state:
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


def cost(state: State, name: str, values: Mapping[str, Any], mode: PlanMode) -> Cost:
    """What a statement costs on a connection of the library's."""
    statement = statements("doctor_queue", state.names)[name]
    with psycopg.ClientCursor(state.connection) as cursor:
        cursor.execute(cast("Any", f"prepare asked as {statement.dollar}".replace("%", "%%")))
        cursor.execute("begin")
        try:
            for setting in WIRE:
                cursor.execute(cast("Any", f"set local {setting} = off"))
            cursor.execute(cast("Any", f"set local plan_cache_mode = {mode}"))
            places = ", ".join(["%s"] * len(statement.parameters))
            explain = f"explain (analyze, buffers, timing off, format json) execute asked({places})"
            cursor.execute(cast("Any", explain), statement.arguments(values))
            row = cursor.fetchone()
        finally:
            cursor.execute("rollback")
            cursor.execute("deallocate asked")
    assert row is not None
    return read(row[0][0]["Plan"])


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


def test_numbers_of_the_log_are_two_descents(million: Million, mode: PlanMode) -> None:
    assert million.cost("doctor_log", "numbers", {}, mode).walked <= 3


@pytest.mark.parametrize("name", ["idle_groups", "forgotten_group_pauses"])
def test_groups_are_read_from_their_places_alone(name: str, million: Million, mode: PlanMode) -> None:
    asked = million.cost("doctor_log", name, {"seconds": 1.0}, mode)
    assert asked.walked <= 51 * SPANS + 10


def test_parked_heads_look_at_the_first_messages_of_so_many_keys(million: Million, mode: PlanMode) -> None:
    """Three groups have five thousand keys each with something deferred, and one has twenty thousand parked."""
    most = 300
    asked = million.cost("doctor_log", "parked_heads", {"seconds": 0.0, "most": most}, mode)
    assert {"million_deferred_wait_idx", "million_deferred_key_idx"} >= asked.scans
    assert asked.walked <= 4 * most + 20 * 1000
