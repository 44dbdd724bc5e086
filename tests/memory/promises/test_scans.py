"""One contract for two, continued: what scans find is claimed by its id, and what cannot be fetched is set apart."""

from uuid import UUID

import pytest

from tests.memory.statement_values import OTHER_TOKEN, TOKEN, TTL, lanes, places
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


@pytest.mark.parametrize("unheard", [[], [TOKEN]], ids=["held", "its answer was lost"])
async def test_lanes_that_have_something_are_found(two: Two, unheard: list[UUID]) -> None:
    names = [("orders", 0), ("orders", 5), ("later", 0), ("held", 0), ("paused", 0), ("keyed", 0), ("nothing", 0)]
    await publish(two, 1, due_at=-100.0)
    await publish(two, 2, queue="later", due_in=200.0)
    await publish(two, 3, queue="held")
    await publish(two, 4, queue="paused")
    await publish(two, 5, queue="keyed", key="k")
    await two.ask("claim", **lanes(("held", 0)))
    await two.ask("pause", queue="paused")
    found: list[list[int | None]] = []
    for keyed in (False, True):
        for floor in (None, -50.0):
            values = places(*names, floor=floor) | {"keyed": [keyed] * len(names), "ttl": TTL, "unheard": unheard}
            found.append([place for _, place in await two.ask("find_lanes", **values)])
    held = [4] if unheard else []
    assert found == [[1, *held], held or [None], [6], [6]]
