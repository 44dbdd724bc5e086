"""What costs others more with every message costs the same here: locks, page writes, pages read, connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox._internal.queue.lanes import BEGINNING, GRACE
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.queue import Dead, Retry
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Rig, Seen, done
from tests.waiting import eventually


async def test_a_claim_of_many_queues_locks_no_more_than_it_takes(rig: Rig) -> None:
    queues = [f"q{number}" for number in range(20)]
    await rig.sql("insert into {t} (queue, payload) select 'q' || i % 20, '' from generate_series(0, 199) i")
    one_each = [1] * 10 + [0] * 10
    values = {
        **{"queues": queues, "priorities": [0] * 20, "floor_ats": [BEGINNING] * 20, "floor_ids": [0] * 20},
        **{"quotas": one_each, "ttls": [60.0] * 20},
        "token": "6f1f6c0e-0000-4000-8000-000000000000",
        "unheard": [],
    }
    claim = statements("claim", rig.client.names)["claim"]
    async with rig.engine.connect() as connection:
        taken = (await connection.exec_driver_sql(claim.dollar, claim.arguments(values))).fetchall()
        free = await rig.one("select count(*) from (select from {t} for update skip locked) f")
        await connection.rollback()
    assert (len(taken), 200 - free) == (10, 10)


@pytest.mark.parametrize("key", ["null", "i % 7"], ids=["keyless", "keyed"])
async def test_every_claim_is_a_hot_update(rig: Rig, key: str) -> None:
    """No index is written when a message changes hands."""
    await rig.sql(
        f"insert into {{t}} (queue, payload, key) select 'orders', 'x', {key} from generate_series(1, 5000) i"
    )
    await rig.work(done, fetch_batch_size=100)
    await eventually(rig.is_empty)
    await rig.close()

    async def counted() -> Mapping[str, Any] | None:
        # The client's connections are closed, and report at the latest then.
        (row,) = await rig.sql("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = '{t}'")
        return row if row["n_tup_upd"] >= 5000 else None

    stats = await eventually(counted)
    assert (stats["n_tup_upd"], stats["n_tup_hot_upd"]) == (5000, 5000)


@pytest.fixture
def last(intercept: Intercept) -> dict[str, Mapping[str, Any]]:
    """The values with which each statement was last sent and found something."""
    found: dict[str, Mapping[str, Any]] = {}

    @intercept
    async def recorded(name: str, values: Mapping[str, Any], send: Send) -> Any:
        rows = await send()
        if rows and rows[0][0] is not None:
            found[name] = values
        return rows

    return found


async def cost_of_a_claim(rig: Rig, last: dict[str, Mapping[str, Any]]) -> int:
    """Pages that a claim touches which takes twenty fresh messages from where the claimer stands."""
    before = len(rig.witness.of(events.Handled))
    await rig.put("x")
    await rig.witness.wait(events.Handled, count=before + 1)
    values = dict(last["claim"]) | {"quotas": [20]}
    insert = f"insert into {rig.table.name} (queue, payload) select 'orders', 'fresh' from generate_series(1, 20)"
    async with rig.engine.connect() as connection:
        await connection.execute(text(insert))
        cost = await rig.explain("claim", "claim", values, connection)
        await connection.rollback()
    return cost.buffers


async def cost_of_a_settle(rig: Rig) -> int:
    """Pages that a settle touches which deletes twenty leased messages."""
    token = uuid4()
    insert = (
        f"insert into {rig.table.name} (queue, payload, acquired_at, acquired_token)"
        " select 'orders', 'fresh', now(), cast(:token as uuid) from generate_series(1, 20) returning id"
    )
    async with rig.engine.connect() as connection:
        ids = (await connection.execute(text(insert), {"token": str(token)})).scalars().all()
        cost = await rig.explain("settle", "settle_done", {"ids": ids, "tokens": [token] * 20}, connection)
        await connection.rollback()
    return cost.buffers


@pytest.fixture
async def churn(rig: Rig) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Twenty thousand messages come and go under an old snapshot, and nobody cleans up behind them."""
    await rig.sql("alter table {t} set (autovacuum_enabled = off)")
    async with rig.engine.connect() as analyst:

        async def come_and_go() -> None:
            await analyst.execution_options(isolation_level="REPEATABLE READ")
            await analyst.execute(text(f"select count(*) from {rig.table.name}"))
            await rig.sql("insert into {t} (queue, payload) select 'orders', 'x' from generate_series(1, 20000)")
            await rig.put("wake")
            await eventually(rig.is_empty, timeout=60)

        yield come_and_go
        await analyst.rollback()


@pytest.mark.slow
async def test_a_claim_does_not_cost_more_after_a_churn_under_an_old_snapshot(
    rig: Rig, churn: Callable[[], Awaitable[None]], last: dict[str, Mapping[str, Any]]
) -> None:
    await rig.work(done, fetch_batch_size=100)
    first = await cost_of_a_claim(rig, last)
    await churn()
    # What fell due within the grace is walked again, and the first look after it begins where the last hint came.
    await asyncio.sleep(GRACE)
    await cost_of_a_claim(rig, last)
    later = await cost_of_a_claim(rig, last)
    assert later <= 2 * first, f"{first} pages before, {later} after"


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["none", "of the empty table"])
async def test_a_settle_does_not_cost_more_after_a_churn_under_an_old_snapshot(
    rig: Rig, churn: Callable[[], Awaitable[None]], statistics: str
) -> None:
    if statistics != "none":
        await rig.sql("analyze {t}")
    await rig.work(done, fetch_batch_size=100)
    first = await cost_of_a_settle(rig)
    await churn()
    later = await cost_of_a_settle(rig)
    assert later <= 2 * first, f"{first} pages before, {later} after"


async def connections(rig: Rig) -> int:
    """How many the client under test has now."""
    return int(
        await rig.one(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and application_name like '% under_test'"
        )
    )


async def test_fifty_workers_on_fifty_queues_use_four_connections(rig: Rig, named_engine: AsyncEngine) -> None:
    client = rig.another_client(engine=named_engine)
    for number in range(50):
        await rig.work(done, f"q{number}", client=client, max_workers=2)
    await rig.witness.wait(events.ListenerReady)
    for number in range(50):
        await rig.put("x", queue=f"q{number}")
    await rig.witness.wait(events.Handled, count=50)
    assert await connections(rig) <= 4


async def test_connections_do_not_grow_while_messages_fail_and_die(rig: Rig, named_engine: AsyncEngine) -> None:
    client = rig.another_client(engine=named_engine)
    handle = Seen(lambda claim: Dead() if claim.attempts_count else Retry(0.01))
    await rig.work(handle, client=client, max_workers=20, fetch_batch_size=50)
    await rig.witness.wait(events.ListenerReady)
    await rig.put(*["x"] * 100)
    most = 0

    async def all_died() -> bool:
        nonlocal most
        most = max(most, await connections(rig))
        return len(rig.witness.of(events.Died)) == 100

    await eventually(all_died)
    assert most <= 4


async def test_the_last_worker_to_stop_closes_the_connections(rig: Rig, named_engine: AsyncEngine) -> None:
    client = rig.another_client(engine=named_engine)
    workers = [await rig.work(done, f"q{number}", client=client) for number in range(3)]
    await rig.witness.wait(events.ListenerReady)
    for worker in workers:
        await worker.stop()

    async def none() -> bool:
        return not await connections(rig)

    await eventually(none)
