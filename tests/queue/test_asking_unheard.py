"""A claim whose answer was lost leaves nothing leased for long, and nothing that is held is taken back."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.queue.asking import MOST_TOKENS, Unheard
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import Rig
from tests.waiting import eventually

LOSES = ("claim", "claim_keys", "claim_found")


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Loses the answers of the next so many claims that have come about."""
    fetch, left = DedicatedConnection.fetch, [0]

    async def lossy(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        rows = await fetch(connection, statement, values)
        if left[0] and statement.name in LOSES and any(row[0] is not None for row in rows):
            left[0] -= 1
            raise ConnectionResetError
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch", lossy)
    return lambda count: left.__setitem__(0, count)


async def handle(claim: Claim) -> Done:
    return DONE


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_a_lost_claim_leased_is_taken_again_at_once(
    rig: Rig, lose: Callable[[int], None], key: str | None
) -> None:
    lose(2)
    await rig.put("a", "b", key=key)
    await rig.work(handle, lease_ttl_seconds=3600.0)
    await rig.witness.wait(events.Handled, count=2)
    # A delivery whose answer was lost is none.
    assert {event.deliveries_count for event in rig.witness.of(events.Handled)} == {1}


async def test_others_do_not_take_it(rig: Rig, lose: Callable[[int], None]) -> None:
    await rig.put("a")
    await rig.sql("update {t} set acquired_token = gen_random_uuid(), acquired_at = now()")
    lose(1)
    await rig.put("b")
    await rig.work(handle, lease_ttl_seconds=3600.0)
    await rig.witness.wait(events.Handled)
    assert [row["payload"] for row in await rig.rows()] == [b"a"]


async def test_a_claim_that_comes_about_late_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on its way when its answer was given up, and leased a message after the next claim had looked."""
    late: list[Any] = []
    fetch = DedicatedConnection.fetch

    async def delayed(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name == "claim" and not late:
            late.append(values["token"])
            raise ConnectionResetError
        return await fetch(connection, statement, values)

    monkeypatch.setattr(DedicatedConnection, "fetch", delayed)
    await rig.work(handle, lease_ttl_seconds=3600.0, min_fetch_interval=0.05, max_fetch_interval=0.05)
    await eventually(lambda: late)
    await rig.sql(
        "insert into {t} (queue, payload, acquired_token, acquired_at, next_attempt_at)"
        " values ('orders', 'a', :token, now(), now() - interval '1 h')",
        token=late[0],
    )
    await rig.witness.wait(events.Handled)


def test_tokens_are_remembered_until_their_leases_have_ended() -> None:
    unheard, token = Unheard(), uuid4()
    unheard.add(token, 100.0)
    assert (unheard.tokens(99.0), unheard.tokens(100.0)) == ([token], [])


def test_no_more_tokens_are_remembered_than_a_statement_carries_easily() -> None:
    unheard, tokens = Unheard(), [uuid4() for _ in range(MOST_TOKENS + 5)]
    for token in tokens:
        unheard.add(token, 100.0)
    assert unheard.tokens(0.0) == tokens[5:]
