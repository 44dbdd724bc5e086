"""One contract for two, continued: what scans find is claimed by its id, and what cannot be fetched is set apart."""

from uuid import UUID

import pytest

from tests.memory.statement_values import OTHER_TOKEN, TOKEN, TTL, lanes
from tests.memory.two_tables import Two, publish


@pytest.mark.parametrize("unheard", [[], [TOKEN]], ids=["held", "its answer was lost"])
async def test_a_message_that_was_found_is_claimed_by_its_id(two: Two, unheard: list[UUID]) -> None:
    await publish(two, 1, 2, due_at=-100.0)
    await publish(two, 3, due_in=200.0)
    await publish(two, 4, key="k")
    await two.ask("claim", **lanes(("orders", 0), quota=1))
    asked = {"queues": ["orders"], "priorities": [0], "from_ats": [None], "from_ids": [0], "ttls": [TTL]}
    for to in (-200.0, 0.0, None):
        await two.ask("claimable", **asked, to_ats=[to], to_ids=[0], most=10, unheard=unheard)
    found = {"ids": [1, 2, 3, 4], "queues": ["orders"] * 4, "ttls": [TTL] * 4}
    rows = await two.ask("claim_found", **found, token=OTHER_TOKEN, unheard=unheard)
    assert len(rows) == 1 + len(unheard)
    await two.compare()


@pytest.mark.parametrize("reason", [None, "unreadable"])
async def test_a_message_is_set_apart_where_nobody_holds_it(two: Two, reason: str | None) -> None:
    await publish(two, 1, headers='{"x": 1}')
    await publish(two, 2)
    await publish(two, 3, key="k")
    await two.ask("claim", **lanes(("orders", 0), quota=1))
    assert len(await two.ask("head_of_key", queue="orders", key="k")) == 1
    for number in (1, 2, 3, 99):
        await two.ask("exists", id=number)
        await two.ask("set_apart", id=number, reason=reason, ttl=TTL, unheard=[])
    await two.compare()
