"""A message that cannot be fetched is found out and set apart; its neighbours get through."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox._internal.queue.asking import STRIKES
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, Rig, done
from tests.waiting import eventually

CLAIMS = ("claim", "claim_keys", "claim_found")


class Transfer:
    """Answers with some bodies in them arrive too late, or cannot be read: after the claim has come about."""

    def __init__(self, intercept: Intercept) -> None:
        self.poison = b"poison"
        self.most = 1_000
        self.error: Exception = ValueError("year 10001 is out of range")
        self.failures = 0

        @intercept
        async def carried(name: str, values: Mapping[str, Any], send: Send) -> Any:
            rows = await send()
            if name in CLAIMS:
                bodies = [row[2] for row in rows if row[0] is not None]
                if self.poison in bodies or len(bodies) > self.most:
                    self.failures += 1
                    raise self.error
            return rows


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails several times is set apart without waiting for seconds to pass."""
    monkeypatch.setattr("faststream_outbox._internal.queue.asking.STRIKE_SECONDS", 0.0)


@pytest.fixture
def transfer(intercept: Intercept) -> Transfer:
    return Transfer(intercept)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
async def test_neighbours_of_an_unreadable_message_get_through(rig: Rig, transfer: Transfer, key: str | None) -> None:
    await rig.put("a", "b", key=None if key is None else "other")
    (number,) = await rig.put("poison", key=key)
    await rig.put(*"cdefgh", key=None if key is None else "third")
    await rig.work(done)
    await rig.witness.wait(events.Handled, count=8)
    event = await rig.witness.wait(events.MessageSetApart)
    assert (event.queue, event.id, event.error) == ("orders", number, transfer.error)
    row = (await rig.sql("select next_attempt_at = 'infinity' as away, acquired_token, headers from {t}"))[0]
    assert (row["away"], row["acquired_token"]) == (True, None)
    assert row["headers"]["x-outbox-failure"].startswith("could not be fetched: ValueError: year 10001")


@pytest.mark.slow
async def test_a_message_below_the_floor_is_found_out_too(rig: Rig, transfer: Transfer) -> None:
    await rig.ended(events.Handled, done, "a", **POLLING)
    await rig.sql(
        "insert into {t} (queue, payload, next_attempt_at)"
        " select 'orders', body, now() - interval '1 h' from unnest(array['b', 'poison', 'c']::bytea[]) body"
    )
    await rig.witness.wait(events.Handled, count=3)
    await rig.witness.wait(events.MessageSetApart)


@pytest.mark.slow
async def test_it_keeps_its_place_in_its_key(rig: Rig, transfer: Transfer) -> None:
    await rig.put("a", "poison", "b", key="k")
    await rig.work(done, **POLLING)
    await rig.witness.wait(events.MessageSetApart)
    await rig.put("c", key="another")
    await rig.witness.wait(events.Handled, count=2)
    assert [row["payload"] for row in await rig.rows()] == [b"poison", b"b"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_is_too_much_at_once_comes_in_smaller_claims(rig: Rig, transfer: Transfer, key: str | None) -> None:
    transfer.most, transfer.error = 3, TimeoutError()
    await rig.put(*"abcdefghij", key=key)
    await rig.work(done)
    await rig.witness.wait(events.Handled, count=10)
    assert rig.witness.of(events.MessageSetApart) == []


async def test_other_queues_do_not_wait_for_it(rig: Rig, transfer: Transfer) -> None:
    transfer.error = ConnectionResetError()
    await rig.put("poison")
    await rig.work(done, ["orders", "mails"], max_workers=4)
    await eventually(lambda: transfer.failures >= 2)
    for number in range(3):
        await rig.put("a", queue="mails")
        await rig.witness.wait(events.Handled, count=number + 1, queue="mails")


@pytest.mark.slow
async def test_a_connection_that_breaks_by_chance_sets_nothing_apart(rig: Rig, transfer: Transfer) -> None:
    transfer.error = ConnectionResetError()
    await rig.put("poison")
    await rig.work(done)
    await eventually(lambda: transfer.failures >= 5, timeout=20)
    transfer.poison = b"none"
    await rig.witness.wait(events.Handled)
    assert rig.witness.of(events.MessageSetApart) == []


@pytest.mark.slow
async def test_one_that_waits_for_a_lock_is_not_to_blame(
    rig: Rig, intercept: Intercept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored apart has an index of its own, which a REINDEX locks for as long as it takes."""
    refusals: list[str | None] = []

    @intercept
    async def heard(name: str, values: Mapping[str, Any], send: Send) -> Any:
        try:
            return await send()
        except Exception as error:
            if name in CLAIMS:
                refusals.append(getattr(error, "sqlstate", None))
            raise

    monkeypatch.setattr("faststream_outbox._internal.queue.client.LOCK_PATIENCE", 0.1)
    client = rig.another_client()
    await rig.put(Random(1).randbytes(20_000).hex())
    index = await rig.one(
        "select i.indexrelid::regclass::text from pg_class c join pg_index i on i.indrelid = c.reltoastrelid"
        " where c.oid = cast('{t}' as regclass)"
    )
    async with rig.engine.begin() as connection:
        await connection.execute(text(f"reindex index {index}"))
        await rig.work(done, client=client)
        await eventually(lambda: len(refusals) >= STRIKES + 2)
    await rig.witness.wait(events.Handled)
    assert (set(refusals), rig.witness.of(events.MessageSetApart)) == ({"55P03"}, [])
