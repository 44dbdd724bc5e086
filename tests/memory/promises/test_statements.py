"""Statements that the random sequences of the memory contract leave out, and that none is left out without a reason."""

from uuid import UUID

import pytest

from faststream_outbox._internal.sql.statements import _source
from tests.memory.statement_values import DEATH, OTHER_TOKEN, TOKEN, TTL, held, lanes, message, places
from tests.memory.two_tables import FILE_OF, FILES, Two, publish


async def test_names_of_queues(two: Two) -> None:
    assert await two.ask("queues", limit=10) == []
    await publish(two, 1, queue="keyless")
    await publish(two, 2, queue="keyed", key="k")
    await publish(two, 3, queue="dead")
    await two.ask("claim", **lanes(("dead", 0)))
    await two.ask("settle_dead", **held(3, **DEATH))
    await two.ask("pause", queue="paused")
    assert await two.ask("queues", limit=10) == [["dead"], ["keyed"], ["keyless"], ["paused"]]
    for name in ("keyless", "keyed", "dead", "paused"):
        assert len(await two.ask("known_queue", queue=name)) == 1
    assert await two.ask("known_queue", queue="unknown") == []


async def test_messages_that_are_alike_are_published_in_their_order(two: Two) -> None:
    one = message(0, key="k", priority=2, headers='{"a": 1}')
    alike = {name: one[name] for name in ("queue", "headers", "due_at", "due_in", "key", "priority")}
    bodies = {"payloads": [b"a", b"b"], "message_ids": [str(UUID(int=number)) for number in (1, 2)]}
    assert await two.ask("publish_alike", **alike, **bodies) == [[1], [2]]
    await two.compare()


async def test_dead_letters_are_counted_and_grouped(two: Two) -> None:
    await publish(two, 1, 2, 3)
    await two.ask("claim", **lanes(("orders", 0)))
    for number, kind in ((1, "ValueError"), (2, None), (3, "ValueError")):
        await two.ask("settle_dead", **held(number, **DEATH | {"error_types": kind}))
    nothing = dict.fromkeys(("ids", "queue", "key", "reason", "error_type", "since", "until"))
    for narrowed in ({}, {"error_type": "ValueError"}, {"queue": "other"}):
        await two.ask("count_dead", frontier=2**62, **nothing | narrowed)
        await two.ask("group_selected", frontier=2**62, **nothing | narrowed)
    assert [group[2:4] for group in await two.ask("group_dead", queue=None)] == [["ValueError", 2], [None, 1]]


async def test_what_stands_in_front_of_a_message_of_its_key(two: Two) -> None:
    await publish(two, 1, 2, key="k")
    await publish(two, 3, key="k", due_in=500.0)
    answers = [await two.ask("overtaken", queues=["orders"], keys=["k"], firsts=[number]) for number in (1, 2)]
    assert answers == [[], [[1]]]


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


def test_every_statement_that_is_answered_in_memory_is_compared() -> None:
    """All but wake-ups and questions about sequences, which are not there, and what names dead letters by id."""
    apart = {"notify", "notify_both", "last_id", "ping", "frontier", "highest_dead", "draw_ids", "set_last_id"}
    apart |= {"drawn_ids", "lock_janitor", "purge_old"}
    by_id = {"list_dead", "replay", "edit_dead", "purge_dead"}
    names = {name for file in FILES for name in _source(file)}
    assert names - set(FILE_OF) == apart | by_id
