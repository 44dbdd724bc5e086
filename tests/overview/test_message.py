"""One message, alive or dead: its state and why, and who holds it; what failed alike; and long searches."""

import asyncio
import os
import re
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.overview import message
from faststream_outbox.errors import InvalidOption, QuestionTimedOut
from faststream_outbox.overview import Overview
from faststream_outbox.queue import DONE, Claim, Done, OutboxClient, Selection, Worker, pause
from tests.cases import case
from tests.overview.conftest import APART, EXPIRED, LATER, LEASED, Fill

RETRIED = LATER | {"attempts_count": "3", "last_attempt_at": "now()"}
GONE = {"acquired_token": "'3f2a9c1b-0000-4000-8000-000000000000'", "acquired_at": "now()"}
WORDS = [
    ({"next_attempt_at": "now() - interval '3 hours'"}, "ready", r"^It has been due for 3 hours, and nobody .* it\.$"),
    (EXPIRED, "ready", "since worker {0.holder_id} last renewed its lease, 24 hours ago"),
    (LATER | {"timer_id": "'t'"}, "scheduled", "^Its timer is due in 60 minutes"),
    (RETRIED, "scheduled", "^Its next attempt after 3 failed is due in 60 minutes"),
    (APART, "scheduled", "set apart"),
    (GONE, "leased", "Worker 3f2a9c1b .* The server knows no connection of it now"),
]
"""Columns, the state, and what is said of it."""


async def test_message_that_is_not_there_is_none(overview_by: Overview) -> None:
    for wanted in (1, -1, 2**63, 2**80, uuid4()):
        assert await overview_by.message(wanted) is None


async def test_state_is_said_with_its_reason(overview_by: Overview, fill: Fill) -> None:
    for columns, state, said in WORDS:
        (id_,) = fill(1, **columns)
        found = await overview_by.message(id_)
        with case((columns, found.why)):
            assert (found.state, found.waits_for, found.holder, found.dead_letter) == (state, None, None, None)
            assert re.search(said.format(found), found.why)
            assert (found.message.id, found.message.payload) == (id_, b"body")


async def test_message_is_found_by_its_message_id(overview_by: Overview, fill: Fill, sync_engine: Engine) -> None:
    first, *_ = fill(50)
    with sync_engine.begin() as connection:
        message_id = connection.execute(text("select message_id from outbox where id = :id"), {"id": first}).scalar()
    found = await overview_by.message(message_id)
    assert found.message.id == first


async def test_message_of_a_paused_queue(overview: Overview, fill: Fill, engine: AsyncEngine, table: Table) -> None:
    (id_,) = fill(1)
    (later,) = fill(1, **LATER)
    await pause(OutboxClient(engine, table, log=None), "orders")
    found = await overview.message(id_)
    assert (found.state, found.why) == ("paused", "Its queue 'orders' is paused.")
    assert (await overview.message(later)).why.endswith("Its queue 'orders' is paused.")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({}, "nobody has claimed that yet"),
        (LEASED, "is being handled"),
        (LATER | {"attempts_count": "1", "last_attempt_at": "now()", "deliveries_count": "1"}, "tried again in 60 min"),
    ],
)
async def test_message_waits_for_the_head_of_its_key(
    overview: Overview, fill: Fill, head: dict[str, str], said: str
) -> None:
    fill(1, key="'other'")
    (first,) = fill(1, key="'k'", **head)
    _, last = fill(2, key="'k'")
    found = await overview.message(last)
    assert (found.state, found.waits_for) == ("blocked", first)
    assert found.why.startswith(f"Message {first} of its key 'k' comes first")
    assert said in found.why


async def test_head_of_a_key_waits_for_nobody(overview: Overview, fill: Fill) -> None:
    fill(1, key="'k'", timer_id="'t'", **LATER)
    first, _ = fill(2, key="'k'")
    assert (await overview.message(first)).state == "ready"


async def test_dead_letter_of_the_key_is_mentioned(overview: Overview, fill: Fill, bury: Fill) -> None:
    (letter,) = bury(1, key="'k'")
    (id_,) = fill(1, key="'k'")
    assert f"dead letter {letter} of its key" in (await overview.message(id_)).why


async def test_dead_message_is_found_by_the_id_that_it_had_and_by_its_message_id(
    overview_by: Overview, bury: Fill
) -> None:
    bury(10, error_type="'ValueError'", attempts_count="4")
    found = await overview_by.message(1003)
    assert found.state == "dead"
    assert found.dead_letter.original_id == 1003
    assert "4 attempts" in found.why
    assert "'rejected': ValueError" in found.why
    assert (await overview_by.message(found.dead_letter.message_id)).dead_letter == found.dead_letter


async def test_pause_is_no_message(overview: Overview, engine: AsyncEngine, table: Table, sync_engine: Engine) -> None:
    await pause(OutboxClient(engine, table, log=None), "orders", create=True)
    with sync_engine.begin() as connection:
        id_ = connection.execute(text("select id from outbox")).scalar_one()
    assert await overview.message(id_) is None


async def test_holder_is_the_process_that_has_the_lease(overview: Overview, engine: AsyncEngine, table: Table) -> None:
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        held.set_result(claim.id)
        await may_end.wait()
        return DONE

    client = OutboxClient(engine, table, log=None)
    worker = Worker(engine, table, "orders", handle, client=client, min_fetch_interval=0.05)
    async with engine.begin() as connection:
        await connection.execute(text("insert into outbox (queue, payload) values ('orders', '')"))
    await worker.start()
    found = await overview.message(await asyncio.wait_for(held, 30))
    may_end.set()
    await worker.stop()
    assert (found.state, found.holder_id) == ("leased", client.identity.worker_id)
    assert (found.holder.pid, found.holder.leases) == (os.getpid(), 1)
    assert "claim" in found.holder.roles
    assert f"process {os.getpid()}" in found.why


async def test_search_goes_on_from_slice_to_slice(
    overview: Overview, fill: Fill, monkeypatch: pytest.MonkeyPatch, sync_engine: Engine
) -> None:
    monkeypatch.setattr(message, "SLICE", 7)
    assert len(fill(30)) == 30
    with sync_engine.begin() as connection:
        rows = connection.execute(text("select id, message_id from outbox order by id")).all()
    for id_, message_id in (rows[0], rows[6], rows[7], rows[29]):
        found = await overview.message(message_id)
        assert found.message.id == id_
    assert await overview.message(uuid4()) is None


async def test_search_that_takes_too_long_says_how_far_it_got(
    overview: Overview, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(30)
    monkeypatch.setattr(message, "SLICE", 7)
    asking: Any = overview._connection
    fetch, slices = asking.fetch, 0

    async def slow(statement: Any, values: Any) -> Any:
        nonlocal slices
        slices += statement.name == "search_messages"
        if slices == 3:
            raise QuestionTimedOut("too slow")
        return await fetch(statement, values)

    monkeypatch.setattr(asking, "fetch", slow)
    with pytest.raises(QuestionTimedOut, match=r"not among the newest 14 rows.*by their id"):
        await overview.message(uuid4())


async def test_letters_that_failed_alike_are_counted(overview_by: Overview, bury: Fill) -> None:
    bury(2, error_type="'KeyError'")
    bury(3)
    bury(1, "mails")
    found = [(each.queue, each.reason, each.error_type, each.count) for each in await overview_by.dead_groups()]
    assert found == [
        ("orders", "rejected", None, 3),
        ("orders", "rejected", "KeyError", 2),
        ("mails", "rejected", None, 1),
    ]


async def test_newest_letters_are_grouped(overview: Overview, bury: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    bury(10, "old")
    bury(5, "new")
    monkeypatch.setattr(message, "MOST_GROUPED", 5)
    assert [(each.queue, each.count) for each in await overview.dead_groups()] == [("new", 5)]


async def test_letters_come_page_by_page(overview_by: Overview, bury: Fill) -> None:
    ids = bury(5)
    bury(5, "mails")
    orders = Selection(queue="orders")
    first = await overview_by.dead_letters(orders, limit=3)
    second = await overview_by.dead_letters(orders, limit=3, after=first[-1].id)
    assert [letter.id for letter in [*first, *second]] == ids
    assert list(await overview_by.dead_letters(orders, after=second[-1].id)) == []
    assert [letter.id for letter in await overview_by.dead_letters(Selection(ids=[ids[2]]))] == [ids[2]]


async def test_selection_that_says_nothing_is_refused(overview: Overview) -> None:
    with pytest.raises(InvalidOption, match="everything"):
        await overview.dead_letters(Selection())
    with pytest.raises(InvalidOption, match="limit"):
        await overview.dead_letters(Selection(everything=True), limit=0)


async def test_without_a_table_of_dead_letters_it_is_asked_for(engine: AsyncEngine, table: Table) -> None:
    overview = Overview(engine, table=table)
    with pytest.raises(InvalidOption, match="dlq_table=make_dlq_table"):
        await overview.dead_groups()
    assert await overview.message(1) is None
    await overview.close()
