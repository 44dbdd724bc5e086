"""Timers and retries under a key: in their place by id once they are due, and in nobody's way before."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.publish import cancel_timer, cancel_timer_sync
from faststream_outbox.queue import DONE, Retry
from tests.queue.rig import QUIET_SECONDS, Rig, Seen, asking
from tests.waiting import eventually

MANY = 150
"""More than are read and sorted."""
FEW = 20

TIMERS = (
    "insert into {t} (queue, key, payload, created_at, next_attempt_at) select 'orders', 'k', '1',"
    " now() - interval '1 h', now() + make_interval(secs => :due_in - n) from generate_series(1, :count) n"
)
"""The last of them by id is the first to fall due."""
AT_ONCE = "insert into {t} (queue, key, payload) select 'orders', 'k', '1' from generate_series(1, :count)"


async def claim(rig: Rig, run: int) -> list[int]:
    statement = statements("keys", rig.client.names)["claim_keys"]
    async with rig.engine.begin() as connection:
        rows = await connection.exec_driver_sql(statement.dollar, statement.arguments(asking("k", run=run)))
        return sorted(row[0] for row in rows)


async def ids(rig: Rig) -> list[int]:
    return [row["id"] for row in await rig.rows()]


@pytest.fixture(params=[FEW, MANY], ids=["few", "many"])
def count(request: pytest.FixtureRequest) -> int:
    return int(request.param)


async def test_due_timers_are_taken_by_id_among_the_others(rig: Rig, count: int) -> None:
    await rig.sql(AT_ONCE, count=2)
    await rig.sql(TIMERS, count=count, due_in=-10.0)
    await rig.sql(AT_ONCE, count=2)
    await rig.sql("update {t} set next_attempt_at = now(), last_attempt_at = now() where id = 2")
    assert await claim(rig, run=15) == (await ids(rig))[:15]


async def test_timers_that_wait_are_passed_over(rig: Rig, count: int) -> None:
    await rig.sql(TIMERS, count=count, due_in=3600.0)
    await rig.sql(TIMERS, count=count, due_in=-10.0)
    await rig.sql(AT_ONCE, count=2)
    assert await claim(rig, run=15) == (await ids(rig))[count : count + 15]


async def test_a_key_is_not_taken_while_one_of_its_timers_is_in_hand(rig: Rig, count: int) -> None:
    await rig.sql(AT_ONCE, count=2)
    await rig.sql(TIMERS, count=count, due_in=-10.0)
    await rig.lease(f"id = {(await ids(rig))[-1]}")
    assert await claim(rig, run=1) == []


async def test_a_timer_in_hand_holds_its_key_when_the_clock_was_set_back(rig: Rig) -> None:
    await rig.sql(TIMERS, count=1, due_in=2.0)
    await rig.lease("id = 1")
    await rig.sql(AT_ONCE, count=1)
    assert await claim(rig, run=1) == []


async def test_timers_that_wait_cost_their_key_nothing(rig: Rig) -> None:
    await rig.sql(TIMERS, count=3000, due_in=3600.0 * 24)
    await rig.sql(AT_ONCE, count=2)
    held: dict[str, Any] = {"held_by_dead": True, "unheard": []}
    lanes = {"queues": ["orders"], "priorities": [0], "ttls": [60.0], "most": 10}
    walk = {"queue": "orders", "after": "", "keys": 10, "ttl": 60.0}
    looks = [
        ("keys", "claim_keys", asking("k")),
        ("scan", "claimable_keys", held | {"held_by_dead": [True]} | lanes),
        ("scan", "walk_keys", held | walk),
    ]
    for file, name, values in looks:
        async with rig.engine.connect() as connection:
            cost = await rig.explain(file, name, values, connection)
        assert cost.rows <= 10, (name, cost)
        assert cost.buffers <= 100 or file == "scan", (name, cost)


async def test_a_timer_that_failed_holds_what_came_after_it(rig: Rig) -> None:
    handle = Seen(lambda claim: Retry(0.2) if claim.payload == b"timer" and not claim.attempts_count else DONE)
    await rig.work(handle)
    await rig.put("timer", key="k", due_in=0.05)
    await rig.witness.wait(events.Retried)
    await rig.put("after", key="k")
    await rig.put("other", key="other")
    await rig.witness.wait(events.Handled, count=3)
    assert [body for body in handle.bodies if body != "other"] == ["timer", "timer", "after"]


async def cancelled(rig: Rig, session: AsyncSession) -> bool:
    wakeups = rig.client.wakeups
    return await cancel_timer(session, rig.table, queue="orders", timer_id="t", wakeups=wakeups)


async def cancelled_without_loop(rig: Rig, session: AsyncSession) -> bool:
    wakeups = rig.client.wakeups
    return await session.run_sync(
        lambda sync: cancel_timer_sync(sync, rig.table, queue="orders", timer_id="t", wakeups=wakeups)
    )


@pytest.mark.slow
@pytest.mark.parametrize("cancel", [cancelled, cancelled_without_loop])
async def test_a_key_goes_on_when_a_timer_that_failed_is_cancelled(rig: Rig, cancel: Any) -> None:
    await rig.work(Seen(lambda claim: Retry(3600.0) if claim.payload == b"timer" else DONE))
    await rig.put("timer", key="k", timer_id="t")
    await rig.witness.wait(events.Retried)
    await rig.put("after", key="k")
    # Until nobody looks any more.
    await asyncio.sleep(QUIET_SECONDS)
    async with AsyncSession(rig.engine) as session, session.begin():
        assert await cancel(rig, session)
    await eventually(rig.is_empty)


@pytest.mark.parametrize("attempted", [True, False])
async def test_only_a_timer_that_held_its_key_is_told_of_when_it_is_cancelled(rig: Rig, *, attempted: bool) -> None:
    await rig.put("timer", key="k", timer_id="t", due_in=3600)
    await rig.sql("update {t} set last_attempt_at = now() where :attempted", attempted=attempted)
    hints: list[Hint] = []
    undo = rig.client.wakeups.attach(hints.append, DedicatedConnection(rig.engine))
    async with AsyncSession(rig.engine) as session, session.begin():
        assert await cancelled(rig, session)
        assert hints == []
    undo()
    assert hints == [Hint("orders", keyless=False, scan=True)] * attempted
