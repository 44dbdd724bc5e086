"""A claim whose answer was lost leaves nothing leased for long, and nothing that is held is taken back."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue.asking import MOST_TOKENS, Unheard
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, Rig, done
from tests.waiting import eventually

LOSES = ("claim", "claim_keys", "claim_found")


@pytest.fixture
def lose(intercept: Intercept) -> Callable[[int], None]:
    """Loses the answers of the next so many claims that have come about."""
    left = [0]

    @intercept
    async def lossy(name: str, values: Mapping[str, Any], send: Send) -> Any:
        rows = await send()
        if left[0] and name in LOSES and any(row[0] is not None for row in rows):
            left[0] -= 1
            raise ConnectionResetError
        return rows

    return lambda count: left.__setitem__(0, count)


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_a_lost_claim_leased_is_taken_again_at_once(
    rig: Rig, lose: Callable[[int], None], key: str | None
) -> None:
    lose(2)
    await rig.put("a", "b", key=key)
    await rig.work(done, lease_ttl_seconds=3600.0)
    await rig.witness.wait(events.Handled, count=2)
    # A delivery whose answer was lost is none.
    assert {event.deliveries_count for event in rig.witness.of(events.Handled)} == {1}


async def test_others_do_not_take_it(rig: Rig, lose: Callable[[int], None]) -> None:
    await rig.put("a")
    await rig.lease()
    lose(1)
    await rig.put("b")
    await rig.work(done, lease_ttl_seconds=3600.0)
    await rig.witness.wait(events.Handled)
    assert [row["payload"] for row in await rig.rows()] == [b"a"]


async def test_a_claim_that_comes_about_late_is_found(rig: Rig, intercept: Intercept) -> None:
    """It was on its way when its answer was given up, and leased a message after the next claim had looked."""
    late: list[Any] = []

    @intercept
    async def delayed(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "claim" and not late:
            late.append(values["token"])
            raise ConnectionResetError
        return await send()

    await rig.work(done, lease_ttl_seconds=3600.0, **POLLING)
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
