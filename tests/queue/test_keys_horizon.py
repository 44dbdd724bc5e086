"""Up to which id nothing can appear any more, and the floors of keys: no message is passed over."""

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import URL, Table

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue import keys as horizons
from faststream_outbox._internal.queue.keys import Horizon
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.schema import Names
from tests.cases import each
from tests.publish.ways import plain
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Gate, Rig, asking, done, hinted
from tests.waiting import eventually

SERVER = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("orders", "k")


@pytest.fixture
def horizon() -> Horizon:
    return Horizon()


class TestReading:
    def test_whoever_wrote_when_the_id_was_read_has_to_end(self, horizon: Horizon) -> None:
        seen = []
        readings = ((7, ["a", "b"]), (9, ["b", "c"]), (11, ["c", "d"]), (12, ["d"]), (15, []))
        for drawn, writers in readings:
            horizon.read(SERVER, drawn, writers, now=0.0)
            seen.append(horizon.id)
        assert seen == [0, 0, 7, 7, 15]

    @each(("drawn", "known"), [(7, 7), (None, 0)])
    def test_nobody_writes_or_the_sequence_may_not_be_read(self, drawn: int | None, known: int) -> None:
        horizon = Horizon()
        horizon.read(SERVER, drawn, [], now=0.0)
        assert horizon.id == known

    def test_another_server_knows_nothing_of_this_one(self, horizon: Horizon) -> None:
        horizon.read(SERVER, 7, [], now=0.0)
        horizon.found(KEY, 5, horizon.id)
        horizon.read(SERVER.replace(hour=1), 6, ["a"], now=0.0)
        assert (horizon.id, horizon.floor(KEY)) == (0, None)

    def test_it_is_read_while_keys_are_claimed_only(self, horizon: Horizon) -> None:
        horizon.is_wanted = True
        assert horizon.wants_reading(0.0)
        horizon.read(SERVER, 7, [], now=0.0)
        assert not horizon.wants_reading(10.0)


class TestFloors:
    @each(
        ("what", "first", "decided", "floor"),
        [
            ("at the first", 5, 100, 5),
            ("not above the horizon", 100, 50, 50),
            ("an empty key", None, 50, 50),
            ("nothing is decided", 5, 0, None),
        ],
    )
    def test_a_floor_lies_neither_above_the_first_nor_above_the_horizon(
        self, what: str, first: int | None, decided: int, floor: int | None
    ) -> None:
        horizon = Horizon()
        horizon.found(KEY, first, decided)
        assert horizon.floor(KEY) == floor

    @each(("seen", "floor"), [(4, None), (5, 5)])
    def test_what_a_scan_sees_below_a_floor_takes_it_away(self, seen: int, floor: int | None) -> None:
        horizon = Horizon()
        horizon.found(KEY, 5, 100)
        horizon.seen(KEY, seen)
        assert horizon.floor(KEY) == floor

    def test_the_keys_that_were_used_last_keep_theirs(self, horizon: Horizon, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(horizons, "MOST_FLOORS", 2)
        for name in ("a", "b", "a", "c"):
            horizon.found(("orders", name), 5, 100)
        assert [horizon.floor(("orders", name)) for name in "abc"] == [5, None, 5]


class Process:
    """What a process does with a key, a step at a time."""

    def __init__(self, connection: psycopg.Connection[Any], table: Table) -> None:
        self._connection = connection
        names = Names.of(table)
        self._claim, self._drawn = statements("keys", names)["claim_keys"], statements("scan", names)["drawn_ids"]
        self._table = table.name
        self.horizon = Horizon()

    def read(self) -> None:
        (row,) = self._connection.execute(self._drawn.pyformat, {"table": self._table}).fetchall()
        self.horizon.read(*row, 0.0)

    def handle(self) -> list[int]:
        """Claim a message of the key and finish it."""
        decided = self.horizon.id
        values = asking(
            "k", held_by_dead=False, floors=[self.horizon.floor(KEY)], server=self.horizon.server, token=uuid4()
        )
        rows = self._connection.execute(self._claim.pyformat, values).fetchall()
        for row in rows:
            self.horizon.found(KEY, row[16], decided)
            self._connection.execute(f"delete from {self._table} where id = {row[0]}")
        return [row[0] for row in rows]


@pytest.fixture
def connect(database_url: URL, table: Table) -> Iterator[Any]:
    opened: list[psycopg.Connection[Any]] = []

    def connect(*, autocommit: bool = False) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(plain(database_url), autocommit=autocommit))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def put(connection: psycopg.Connection[Any], table: Table) -> int:
    row = connection.execute(
        f"insert into {table.name} (queue, key, payload) values ('orders', 'k', '1') returning id"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def process(connect: Any, table: Table) -> Process:
    return Process(connect(autocommit=True), table)


STEPS = ("read", "handle", "read", "handle", "read", "read", "handle", "handle")


@pytest.mark.parametrize("committed", range(len(STEPS)))
@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "in a savepoint"])
def test_a_lower_id_is_next_whenever_it_commits(
    connect: Any, table: Table, process: Process, committed: int, is_nested: bool
) -> None:
    late, others = connect(), connect(autocommit=True)
    if is_nested:
        late.execute("savepoint one")
    lower = put(late, table)
    if is_nested:
        late.execute("release savepoint one")
    for _ in range(len(STEPS)):
        put(others, table)
    for step in STEPS[:committed]:
        taken = getattr(process, step)()
        assert taken is None or (taken and lower not in taken)
        assert process.horizon.id == 0
    late.commit()
    assert process.handle() == [lower]


def test_a_horizon_is_reached_when_all_have_ended(connect: Any, table: Table, process: Process) -> None:
    late, idle = connect(), connect()
    idle.execute("select 1")
    put(late, table)
    last = put(connect(autocommit=True), table)
    process.read()
    late.rollback()
    process.read()
    assert process.horizon.id == last
    # It has drawn nothing yet, and what it draws comes after.
    assert put(idle, table) > last


def test_an_id_that_is_drawn_and_not_yet_inserted_counts(connect: Any, table: Table, process: Process) -> None:
    """Its transaction has no xid yet: a trigger takes its time before the row is written."""
    owner = connect(autocommit=True)
    owner.execute(
        f"create function wait_{table.name}() returns trigger language plpgsql as"
        f" $$ begin perform pg_advisory_xact_lock(71); return new; end $$;"
        f"create trigger wait before insert on {table.name} for each row execute function wait_{table.name}()"
    )
    gate = connect()
    gate.execute("select pg_advisory_lock(71)")
    gate.commit()
    slow = connect(autocommit=True)
    thread = threading.Thread(target=put, args=(slow, table))
    thread.start()
    try:
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and objid = 71 and not granted"
        while owner.execute(waiting).fetchone() == (0,):
            pass
        process.read()
        process.read()
        assert process.horizon.id == 0
    finally:
        gate.execute("select pg_advisory_unlock(71)")
        thread.join()
    process.read()
    assert process.horizon.id > 0


def test_ids_that_sessions_keep_back_are_not_in_order(connect: Any, table: Table) -> None:
    owner = connect(autocommit=True)
    owner.execute(f"alter sequence {table.name}_id_seq cache 10")
    put(owner, table)
    process = Process(owner, table)
    process.read()
    assert process.horizon.id == 0


async def test_dead_entries_of_a_deep_key_are_not_walked(rig: Rig) -> None:
    many = "insert into {t} (queue, key, payload) select 'orders', 'k', '' from generate_series(1, 5000)"
    async with rig.engine.connect() as analyst:
        await analyst.execution_options(isolation_level="REPEATABLE READ")
        await analyst.exec_driver_sql("select 1")
        await rig.sql(many)
        await rig.sql("delete from {t} where id < 5000")
        server = await rig.one("select pg_postmaster_start_time()")
        values = asking("k", held_by_dead=False, floors=[5000], server=server)
        async with rig.engine.connect() as connection:
            above = await rig.explain("keys", "claim_keys", values, connection)
            await connection.rollback()
            # What is known of another server does not count.
            other = values | {"server": server.replace(year=2000)}
            all_ = await rig.explain("keys", "claim_keys", other, connection)
    assert above.buffers < 60 < 100 < all_.buffers


async def test_a_drain_stands_on_floors_and_asks_no_more_than_it_must(
    rig: Rig, sent: list[str], intercept: Intercept
) -> None:
    gate = Gate()
    known: list[tuple[int | None, int | None]] = []

    @intercept
    async def noted(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "claim_keys":
            known.append((values["floors"][0], values["nexts"][0]))
        return await send()

    *_, last = await rig.publish(*(Envelope(queue="orders", body=b"1", key="k") for _ in range(100)))
    await rig.work(gate)
    horizon = rig.client.plans.horizon
    await eventually(lambda: horizon.id >= last)
    # From here on whatever is claimed knows the horizon.
    await rig.witness.wait(events.Started)
    sent.clear()
    gate.open.set()
    await rig.witness.wait(events.Handled, count=100)
    assert (sent.count("claim_keys") > 5, sent.count("overtaken")) == (True, 0)
    assert (horizon.floor(KEY) or 0) > last - 50
    # All but a few: the first finds where the key begins, the second where it goes on; the last has nothing behind it.
    assert len([claim for claim in known if None not in claim]) > 3


@pytest.mark.slow
async def test_what_appears_below_a_floor_all_the_same_is_found_by_a_scan(rig: Rig) -> None:
    """As an operator writes it, with an id of his own."""
    ids = await rig.publish(*(Envelope(queue="orders", body=b"1", key="k") for _ in range(20)))
    await rig.work(done)
    await rig.witness.wait(events.Handled, count=20)
    rig.client.plans.horizon.found(KEY, None, ids[-1])
    await rig.sql("insert into {t} (id, queue, key, payload) values (:id, 'orders', 'k', '1')", id=ids[3])
    hinted(rig.client, Hint("orders", scan=True))
    await rig.witness.wait(events.Handled, count=21)
