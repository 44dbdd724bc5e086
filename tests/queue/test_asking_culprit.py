"""A message that cannot be fetched is found out and set apart; its neighbours get through."""

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.queue.asking import STRIKES
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually

CLAIMS = ("claim", "claim_keys", "claim_found")


class Transfer:
    """Answers with some bodies in them arrive too late, or cannot be read: after the claim has come about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.poison = b"poison"
        self.most = 1_000
        self.error: Exception = ValueError("year 10001 is out of range")
        self.failures = 0
        fetch = DedicatedConnection.fetch

        async def carried(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
            rows = await fetch(connection, statement, values)
            if statement.name in CLAIMS:
                bodies = [row[2] for row in rows if row[0] is not None]
                if self.poison in bodies or len(bodies) > self.most:
                    self.failures += 1
                    raise self.error
            return rows

        monkeypatch.setattr(DedicatedConnection, "fetch", carried)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails several times is set apart without waiting for seconds to pass."""
    monkeypatch.setattr("faststream_outbox._internal.queue.asking.STRIKE_SECONDS", 0.0)


@pytest.fixture
def transfer(monkeypatch: pytest.MonkeyPatch) -> Transfer:
    return Transfer(monkeypatch)


async def handle(claim: Claim) -> Done:
    return DONE


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
async def test_neighbours_of_an_unreadable_message_get_through(rig: Rig, transfer: Transfer, key: str | None) -> None:
    await rig.put("a", "b", key=None if key is None else "other")
    (number,) = await rig.put("poison", key=key)
    await rig.put(*"cdefgh", key=None if key is None else "third")
    await rig.work(handle)
    await rig.witness.wait(events.Handled, count=8)
    event = await rig.witness.wait(events.MessageSetApart)
    assert (event.queue, event.id, event.error) == ("orders", number, transfer.error)
    row = (await rig.sql("select next_attempt_at = 'infinity' as away, acquired_token, headers from {t}"))[0]
    assert (row["away"], row["acquired_token"]) == (True, None)
    assert row["headers"]["x-outbox-failure"].startswith("could not be fetched: ValueError: year 10001")


@pytest.mark.slow
async def test_a_message_below_the_floor_is_found_out_too(rig: Rig, transfer: Transfer) -> None:
    await rig.work(handle, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    await rig.sql(
        "insert into {t} (queue, payload, next_attempt_at)"
        " select 'orders', body, now() - interval '1 h' from unnest(array['b', 'poison', 'c']::bytea[]) body"
    )
    await rig.witness.wait(events.Handled, count=3)
    await rig.witness.wait(events.MessageSetApart)


@pytest.mark.slow
async def test_it_keeps_its_place_in_its_key(rig: Rig, transfer: Transfer) -> None:
    await rig.put("a", "poison", "b", key="k")
    await rig.work(handle, **POLLING)
    await rig.witness.wait(events.MessageSetApart)
    await rig.put("c", key="another")
    await rig.witness.wait(events.Handled, count=2)
    assert [row["payload"] for row in await rig.rows()] == [b"poison", b"b"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_is_too_much_at_once_comes_in_smaller_claims(rig: Rig, transfer: Transfer, key: str | None) -> None:
    transfer.most, transfer.error = 3, TimeoutError()
    await rig.put(*"abcdefghij", key=key)
    await rig.work(handle)
    await rig.witness.wait(events.Handled, count=10)
    assert rig.witness.of(events.MessageSetApart) == []


async def test_other_queues_do_not_wait_for_it(rig: Rig, transfer: Transfer) -> None:
    transfer.error = ConnectionResetError()
    await rig.put("poison")
    await rig.work(handle, ["orders", "mails"], max_workers=4)
    await eventually(lambda: transfer.failures >= 2)
    for number in range(3):
        await rig.put("a", queue="mails")
        await rig.witness.wait(events.Handled, count=number + 1, queue="mails")


@pytest.mark.slow
async def test_a_connection_that_breaks_by_chance_sets_nothing_apart(rig: Rig, transfer: Transfer) -> None:
    transfer.error = ConnectionResetError()
    await rig.put("poison")
    await rig.work(handle)
    await eventually(lambda: transfer.failures >= 5, timeout=20)
    transfer.poison = b"none"
    await rig.witness.wait(events.Handled)
    assert rig.witness.of(events.MessageSetApart) == []


async def test_times_outside_the_calendar_can_be_read(driver_rig: Rig) -> None:
    rig = driver_rig
    columns = ("created_at", "next_attempt_at", "first_attempt_at", "last_attempt_at")
    moments = ("10001-01-01", "0044-03-15 BC", "infinity", "-infinity")
    later = {("next_attempt_at", "10001-01-01"), ("next_attempt_at", "infinity")}
    due: set[int] = set()
    queues = {f"{column} {moment}": (column, moment) for column, moment in product(columns, moments)}
    for queue, (column, moment) in queues.items():
        number, neighbour = await rig.put("a", "b", queue=queue)
        await rig.sql(f"update {{t}} set {column} = '{moment}' where id = {number}")
        due |= {neighbour} if (column, moment) in later else {number, neighbour}
    seen: dict[int, Any] = {}

    async def read(claim: Claim) -> Done:
        seen[claim.id] = (claim.created_at, claim.next_attempt_at, claim.first_attempt_at, claim.last_attempt_at)
        return DONE

    await rig.work(read, list(queues))
    await rig.witness.wait(events.Handled, count=len(due))
    assert seen.keys() == due


async def test_the_count_of_deliveries_does_not_overflow(rig: Rig) -> None:
    await rig.put("a")
    await rig.sql("update {t} set deliveries_count = 9223372036854775807")
    await rig.work(handle, crash_limit=2**63)
    await rig.witness.wait(events.Handled)


@pytest.mark.slow
async def test_one_that_waits_for_a_lock_is_not_to_blame(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored apart has an index of its own, which a REINDEX locks for as long as it takes."""
    refusals: list[str | None] = []
    fetch = DedicatedConnection.fetch

    async def heard(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        try:
            return await fetch(connection, statement, values)
        except Exception as error:
            if statement.name in CLAIMS:
                refusals.append(getattr(error, "sqlstate", None))
            raise

    monkeypatch.setattr(DedicatedConnection, "fetch", heard)
    monkeypatch.setattr("faststream_outbox._internal.queue.client.LOCK_PATIENCE", 0.1)
    client = rig.another_client()
    await rig.put(Random(1).randbytes(20_000).hex())
    index = await rig.one(
        "select i.indexrelid::regclass::text from pg_class c join pg_index i on i.indrelid = c.reltoastrelid"
        " where c.oid = cast('{t}' as regclass)"
    )
    async with rig.engine.begin() as connection:
        await connection.execute(text(f"reindex index {index}"))
        await rig.work(handle, client=client)
        await eventually(lambda: len(refusals) >= STRIKES + 2)
    await rig.witness.wait(events.Handled)
    assert (set(refusals), rig.witness.of(events.MessageSetApart)) == ({"55P03"}, [])
