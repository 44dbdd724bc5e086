"""Every hot statement of the log keeps its index and its cost at a million messages.

Looks at the plan's scans, at the rows that it walked and at the pages that it touched, which do not depend
on the machine; asked as a long-lived connection would ask, with custom and with generic plans.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import URL, MetaData, create_engine

from faststream_outbox._internal.log.sharing.slots import as_filters
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.log import LogTables, make_log_tables
from tests.sql.plans import PlanMode, nodes

pytestmark = pytest.mark.slow

MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")
MESSAGES = 1_000_000
PER_TICK = 1000
SPANS = 16
ASIDES = 20_000
ME = UUID("00000000-0000-4000-8000-00000000beef")
WIRE = ("enable_seqscan", "enable_bitmapscan", "jit")
GROUP = {"group": "g", "uri": ""}
MIDDLE = MESSAGES // 2
STAMP = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a statement did."""

    scans: frozenset[str]
    """Indexes used; the kind of scan where none was."""
    walked: int
    """Rows looked at, kept or not."""
    buffers: int


TICK = {"limit": 10_000, "islands": 1_000, "ranges": 20_000, "sweep": 1_000, "channel": "nobody", "place": "here:"}


class Million:
    """A log of a million messages, sequenced, with a group that is half-way and keys that wait."""

    def __init__(self, connection: psycopg.Connection[Any], tables: LogTables, dsn: str) -> None:
        self._connection = connection
        self.dsn = dsn
        self.names = LogNames.of(tables)

    def execute(self, statement: str) -> None:
        for place, name in self.names.places().items():
            statement = statement.replace(f"{{{place}}}", name)
        self._connection.execute(cast("Any", statement))

    def fill(self) -> None:
        self.execute(
            "insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id) "
            "select n, 'orders/' || n % 5000, n % 256, '{\"n\": 1}', '{}', now(), 1 "
            f"from generate_series(1, {MESSAGES}) n"
        )
        self.execute(
            f"insert into {{ticks}} (tick, lows, highs, count, at) select n, array[(n - 1) * {PER_TICK} + 1], "
            f"array[n * {PER_TICK}], {PER_TICK}, '{STAMP}' from generate_series(1, {MESSAGES // PER_TICK}) n"
        )
        self.execute(
            "insert into {head_table} (id, high, tick, drawn, origin) "
            f"values (1, {MESSAGES}, {MESSAGES // PER_TICK}, 0, 'here:' || pg_relation_filenode('{{sequence_name}}'))"
        )
        self.execute(f"select setval('{{sequence_name}}', {MESSAGES})")
        self.execute(
            "insert into {offsets} (consumer_group, uri, lo, hi, tick, position, epoch, owner, until) "
            "select 'g' || case when g = 0 then '' else g::text end, '', s * 16, s * 16 + 15, "
            f"{MIDDLE // PER_TICK}, {MIDDLE}, 1, '{ME}', "
            f"now() + interval '1 hour' from generate_series(0, 50) g, generate_series(0, {SPANS - 1}) s"
        )
        self.execute(
            "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state, due) "
            f"select g.name, '', n, n / {PER_TICK} + 1, n % 256, 'orders/' || n % 5000, "
            f"case when n <= 5000 then 'retry' else 'deferred' end, now() "
            f"from unnest(array['g', 'h', 'i']) g (name), generate_series(1, {ASIDES}) n"
        )
        self.execute(
            "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
            f"select 'parked', '', n, n / {PER_TICK} + 1, 1, 'k', "
            f"case when n = {ASIDES} then 'retry' else 'parked' end "
            f"from generate_series(1, {ASIDES}) n"
        )
        self.execute("analyze")

    def cost(self, file: str, name: str, values: Mapping[str, Any], mode: PlanMode) -> Cost:
        """What a statement costs on a connection of the library's, rolled back."""
        statement = statements(file, self.names)[name]
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(cast("Any", f"prepare asked as {statement.dollar}".replace("%", "%%")))
            cursor.execute("begin")
            try:
                for setting in WIRE:
                    cursor.execute(cast("Any", f"set local {setting} = off"))
                cursor.execute(cast("Any", f"set local plan_cache_mode = {mode}"))
                places = ", ".join(["%s"] * len(statement.parameters))
                asked = f"execute asked({places})" if places else "execute asked"
                explain = f"explain (analyze, buffers, timing off, format json) {asked}"
                cursor.execute(cast("Any", explain), statement.arguments(values))
                row = cursor.fetchone()
            finally:
                cursor.execute("rollback")
                cursor.execute("deallocate asked")
        assert row is not None
        return read(row[0][0]["Plan"])


def read(tree: Mapping[str, Any]) -> Cost:
    scans, walked = set(), 0
    for node in nodes(tree):
        if "Relation Name" in node and str(node["Node Type"]).endswith("Scan") and float(node["Actual Loops"]):
            scans.add(str(node.get("Index Name", f"{node['Node Type']} of {node['Relation Name']}")))
            rows = sum(float(node.get(part, 0)) for part in ("Actual Rows", "Rows Removed by Filter"))
            walked += round(rows * float(node["Actual Loops"]))
    buffers = sum(int(tree.get(part, 0)) for part in ("Shared Hit Blocks", "Shared Read Blocks"))
    return Cost(frozenset(scans), walked, buffers)


@pytest.fixture(scope="module")
def million(database_url: URL) -> Iterator[Million]:
    tables = make_log_tables(MetaData(), "million", "million_offsets")
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    tables.log.metadata.create_all(engine)
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            million = Million(connection, tables, dsn)
            million.fill()
            yield million
    finally:
        tables.log.metadata.drop_all(engine)
        engine.dispose()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> PlanMode:
    return cast("PlanMode", request.param)


def window(positions: int) -> dict[str, Any]:
    first = MIDDLE // PER_TICK + 1
    ticks = -(-positions // PER_TICK)
    los = [(first + n - 1) * PER_TICK + 1 for n in range(ticks)]
    return {
        **as_filters({"": 2**256 - 1}),
        "bytes": 2**23,
        "unreadable": [],
        "ticks": [first + n for n in range(ticks)],
        "los": los,
        "his": [lo + min(positions, PER_TICK) - 1 for lo in los],
    }


def test_fetch_of_everything_walks_what_it_returns(million: Million, mode: PlanMode) -> None:
    values = {**window(100), "limit": 100}
    cost = million.cost("log", "fetch", values, mode)
    assert cost.scans == {"million_pkey"}
    assert cost.walked <= 101
    assert cost.buffers <= 30


def test_fetch_of_some_slots_walks_its_window(million: Million, mode: PlanMode) -> None:
    values = {**window(1600), **as_filters({"orders": 2**16 - 1}), "limit": 100}
    cost = million.cost("log", "fetch", values, mode)
    assert cost.scans == {"million_pkey"}
    assert cost.walked <= 2000
    assert cost.buffers <= 120


def test_fetch_stops_at_its_limit(million: Million, mode: PlanMode) -> None:
    values = {**window(20_000), "limit": 100}
    cost = million.cost("log", "fetch", values, mode)
    assert cost.walked <= 2 * PER_TICK


def test_fetch_for_many_members_walks_its_window_once(million: Million, mode: PlanMode) -> None:
    """What all who wait want together: most of it is not there."""
    wanted = {f"quiet/{number}": 2**256 - 1 for number in range(100)} | {"orders": 2**16 - 1}
    cost = million.cost("log", "fetch", {**window(1000), **as_filters(wanted), "limit": 500}, mode)
    assert cost.scans == {"million_pkey"}
    assert cost.walked <= 1001
    assert cost.buffers <= 60


def test_ticks_after_a_place(million: Million, mode: PlanMode) -> None:
    cost = million.cost("log", "ticks_after", {"tick": 500, "limit": 200, "positions": 100_000}, mode)
    assert cost.scans == {"million_ticks_pkey"}
    assert cost.walked <= 201


def test_look_touches_a_row_or_two(million: Million, mode: PlanMode) -> None:
    cost = million.cost("tick", "progress", TICK, mode)
    assert cost.walked <= 4
    assert cost.buffers <= 16


def test_tick_of_nothing_new_costs_the_same_at_any_size(million: Million, mode: PlanMode) -> None:
    cost = million.cost("tick", "tick", TICK, mode)
    assert "Seq Scan of million" not in cost.scans
    assert cost.walked <= 20
    assert cost.buffers <= 60


def test_tick_of_a_thousand_walks_a_thousand(million: Million, mode: PlanMode) -> None:
    million.execute(f"update {{head_table}} set high = {MESSAGES - 1000}")
    try:
        cost = million.cost("tick", "tick", TICK, mode)
    finally:
        million.execute(f"update {{head_table}} set high = {MESSAGES}")
    assert "million_pkey" in cost.scans
    assert cost.walked <= 1020


def cursors() -> dict[str, Any]:
    los = [span * 16 for span in range(SPANS)]
    same = [MIDDLE // PER_TICK] * SPANS
    # Whatever of these a statement does not name is left out.
    return {
        **GROUP, "me": ME, "ttl": 15.0, "release": False, "los": los, "epochs": [1] * SPANS,
        "ticks": [value + 1 for value in same], "positions": [MIDDLE + 1000] * SPANS,
        "stamps": [STAMP] * SPANS, "from_ticks": same, "from_positions": [MIDDLE] * SPANS, "again": False,
    }  # fmt: skip


def test_moving_cursors_walks_those_of_the_group(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group", "move", cursors(), mode)
    assert cost.scans == {"million_offsets_pkey", "million_ticks_pkey"}
    assert cost.walked <= 2 * SPANS * SPANS
    assert cost.buffers <= 25 * SPANS


def test_advancing_with_messages_set_aside_walks_no_others(million: Million, mode: PlanMode) -> None:
    count = 50
    deferrals = {
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
    cost = million.cost("group", "advance", {**cursors(), **deferrals}, mode)
    assert cost.scans <= {"million_offsets_pkey", "million_ticks_pkey"}
    assert cost.walked <= 3 * SPANS * SPANS
    assert cost.buffers <= 25 * SPANS + 30 * count


def test_question_where_cursors_stand_walks_those_of_the_group(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group", "spans_still_ours", cursors(), mode)
    assert cost.scans == {"million_offsets_pkey"}
    assert cost.walked <= 3 * SPANS * SPANS


def test_question_which_messages_are_set_aside_walks_those_only(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group", "still_deferred", {**GROUP, "positions": [*range(1, 51)]}, mode)
    assert cost.scans == {"million_deferred_pkey"}
    assert cost.walked <= 50


def test_blocked_keys_are_found_in_their_group(million: Million, mode: PlanMode) -> None:
    cost = million.cost("deferred", "blocked", {**GROUP, "los": [0], "his": [255]}, mode)
    assert cost.scans == {"million_deferred_wait_idx"}
    assert cost.walked <= ASIDES + 1


def test_blocked_keys_of_some_slots_are_found_there(million: Million, mode: PlanMode) -> None:
    cost = million.cost("deferred", "blocked", {**GROUP, "los": [16, 64], "his": [31, 79]}, mode)
    assert cost.scans == {"million_deferred_wait_idx"}
    assert cost.walked <= ASIDES * 32 // 256 + 100


def test_blocked_keys_with_parked_ones_are_found_in_their_group(million: Million, mode: PlanMode) -> None:
    cost = million.cost("deferred", "blocked_or_parked", {**GROUP, "los": [0], "his": [255]}, mode)
    assert cost.scans <= {"million_deferred_key_idx", "million_deferred_pkey"}
    assert cost.walked <= ASIDES + 1


def test_blocked_keys_of_a_group_without_any_cost_nothing(million: Million, mode: PlanMode) -> None:
    values = {**GROUP, "group": "nothing waits here", "los": [0], "his": [255]}
    cost = million.cost("deferred", "blocked", values, mode)
    assert (cost.walked, cost.buffers <= 10) == (0, True)


def test_parked_messages_cost_nothing_where_they_block_nothing(million: Million, mode: PlanMode) -> None:
    """One waits, under the key of all those that are parked."""
    waiting = {**GROUP, "group": "parked", "keys": ["k"], "slots": [1], "limit": 100, "unreadable": []}
    found = million.cost("deferred", "fetch_waiting", waiting, mode)
    assert found.scans == {"million_deferred_wait_idx", "million_pkey"}
    assert found.walked <= 4
    blocked = million.cost("deferred", "blocked", {**GROUP, "group": "parked", "los": [0], "his": [255]}, mode)
    assert (blocked.walked <= 4, blocked.buffers <= 20) == (True, True)


def test_messages_that_wait_under_some_keys_are_found_by_key(million: Million, mode: PlanMode) -> None:
    keys = [f"orders/{n}" for n in range(10)]
    cost = million.cost("deferred", "fetch_deferred", {**GROUP, "keys": keys, "limit": 100, "unreadable": []}, mode)
    assert cost.scans == {"million_deferred_key_idx", "million_pkey"}
    assert cost.walked <= 2 * 10 * 4 + 10


def test_settling_messages_that_waited_walks_those_only(million: Million, mode: PlanMode) -> None:
    changes: dict[str, Any] = {
        name: [] for name in ("positions", "states", "attempts", "delays", "types", "messages", "tracebacks")
    }
    values = {**cursors(), **changes, "done": [*range(1, 51)]}
    cost = million.cost("deferred", "settle_deferred", values, mode)
    assert cost.scans <= {"million_deferred_pkey", "million_offsets_pkey"}
    assert cost.walked <= 3 * SPANS * SPANS + 50 * SPANS


def test_heartbeat_walks_members_of_the_group(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group", "heartbeat", {**GROUP, "me": ME, "ttl": 15.0}, mode)
    assert cost.buffers <= 20


def members(count: int = 51) -> dict[str, Any]:
    """Spans of some members, each of another group, that have read the same."""
    names = ["g" + (str(number) if number else "") for number in range(count)]
    same: dict[str, Any] = {"groups": names, "uris": [""] * count, "owners": [ME] * count, "members": [ME] * count}
    moves = {
        "ticks": [MIDDLE // PER_TICK + 1] * count, "positions": [MIDDLE + 1000] * count, "stamps": [STAMP] * count,
        "from_ticks": [MIDDLE // PER_TICK] * count, "from_positions": [MIDDLE] * count,
    }  # fmt: skip
    return {**same, **moves, "los": [16] * count, "epochs": [1] * count, "ttls": [15.0] * count}


@pytest.mark.parametrize("name", ["move_each", "renew_each"])
def test_spans_of_many_members_are_found_one_by_one(million: Million, mode: PlanMode, name: str) -> None:
    cost = million.cost("group", name, members(), mode)
    assert cost.scans <= {"million_offsets_pkey", "million_ticks_pkey"}
    assert cost.walked <= 5 * 51
    assert cost.buffers <= 30 * 51


def test_look_at_many_groups_walks_theirs_only(million: Million, mode: PlanMode) -> None:
    cost = million.cost("group", "spans_of_groups", members(20), mode)
    assert cost.scans == {"million_offsets_pkey"}
    assert cost.walked <= 20 * SPANS
    quiet = {"groups": [f"quiet {number}" for number in range(100)], "uris": [""] * 100}
    cost = million.cost("group", "census", {**quiet, "holds": [False] * len(quiet["groups"])}, mode)
    assert cost.walked == 0
    assert cost.buffers <= 100 * 12


def test_unread_of_a_token_does_not_walk_the_log(million: Million, mode: PlanMode) -> None:
    values = {**GROUP, "positions": [MESSAGES - 1, MESSAGES]}
    cost = million.cost("position", "unread", values, mode)
    assert cost.walked <= 2 * (MESSAGES // PER_TICK) + 100


def test_place_of_a_transaction_does_not_join_the_log_with_the_ticks(million: Million) -> None:
    values = {"transaction_id": 0, "offset": 0}
    cost = million.cost("position", "place_of_pair", values, "force_custom_plan")
    assert cost.walked <= 3 * PER_TICK


def test_look_does_not_walk_over_what_an_open_transaction_has_published(million: Million, mode: PlanMode) -> None:
    """A publisher of very many messages that takes its time must not make every look of every process long."""
    with psycopg.connect(million.dsn) as publisher:
        publisher.execute(
            "insert into million (position, uri, slot, payload, metadata, created_at, transaction_id) "
            "select nextval('million_head_drawn_seq'), 'k', 1, '1', '{}', now(), 1 from generate_series(1, 20000)"
        )
        cost = million.cost("tick", "progress", TICK, mode)
        publisher.rollback()
    assert cost.buffers <= 100
