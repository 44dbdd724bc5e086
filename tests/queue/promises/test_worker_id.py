"""The client's connections and leases bear the same worker id, so that who holds a message is a join."""

import asyncio

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox import events
from faststream_outbox._internal.connections.identity import parse_name
from faststream_outbox.queue import DONE, Claim, Done, OutboxClient, Worker
from tests.queue.rig import Rig
from tests.waiting import eventually

HOLDER = (
    "select distinct a.application_name as name from {t} o join pg_stat_activity a"
    " on a.application_name like 'outbox ' || left(o.acquired_token::text, 8) || ' %' where o.queue <> '$paused'"
)


@pytest.mark.parametrize("key", [None, "k"])
async def test_holder_of_a_lease_is_found_by_a_join(rig: Rig, key: str | None) -> None:
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await may_end.wait()
        return DONE

    await rig.work(handle)
    await rig.put("a", key=key)
    await rig.witness.wait(events.Started)
    found = [parse_name(row["name"]) for row in await rig.sql(HOLDER)]
    assert {each.worker_id for each in found if each} == {rig.client.identity.worker_id}
    may_end.set()
    await rig.witness.wait(events.Handled)


async def test_strays_are_leased_under_the_worker_id_too(rig: Rig) -> None:
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await may_end.wait()
        return DONE

    await rig.put("a")
    await rig.sql("update {t} set acquired_token = gen_random_uuid(), acquired_at = now() - interval '1 day'")
    await rig.work(handle, min_fetch_interval=0.05, max_fetch_interval=0.05)
    await rig.witness.wait(events.Started)
    assert str((await rig.row())["acquired_token"])[:8] == rig.client.identity.worker_id
    may_end.set()
    await rig.witness.wait(events.Handled)


async def test_each_connection_says_what_it_is_for(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    await rig.work(handle)
    await rig.witness.wait(events.ListenerReady)
    await rig.put("a")
    await rig.witness.wait(events.Handled)

    async def all_of_them() -> bool:
        rows = await rig.sql("select application_name from pg_stat_activity where datname = current_database()")
        found = [parse_name(row["application_name"]) for row in rows]
        ours = {each.role for each in found if each and each.worker_id == rig.client.identity.worker_id}
        return ours == {"claim", "scan", "settle", "listen"}

    await eventually(all_of_them)


def test_client_is_somebody_else_in_another_event_loop(database_url: URL, table: Table, dlq_table: Table) -> None:
    engine = create_async_engine(database_url, poolclass=NullPool)
    client = OutboxClient(engine, table, dlq_table=dlq_table, log=None)

    async def scene() -> tuple[str, str, str]:
        held = asyncio.Event()
        may_end = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            held.set()
            await may_end.wait()
            return DONE

        async with engine.begin() as connection:
            await connection.execute(text("insert into outbox (queue, payload) values ('orders', '')"))
        worker = Worker(engine, table, "orders", handle, client=client, min_fetch_interval=0.05)
        await worker.start()
        await asyncio.wait_for(held.wait(), 30)
        async with engine.connect() as connection:
            token = (await connection.execute(text("select acquired_token::text from outbox"))).scalar_one()
            named = text("select application_name from pg_stat_activity where application_name like :name")
            names = (await connection.execute(named, {"name": f"outbox {token[:8]} claim %"})).scalars().all()
        may_end.set()
        await worker.stop()
        return client.identity.worker_id, token[:8], names[0]

    first = asyncio.run(scene())
    second = asyncio.run(scene())
    for worker_id, token, name in (first, second):
        assert token == worker_id
        assert name.split()[1] == worker_id
    assert first[0] != second[0]
    asyncio.set_event_loop_policy(None)
