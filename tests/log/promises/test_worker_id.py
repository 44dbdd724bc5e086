"""The log's connections and members bear the same worker id, so that who reads a slot is a join."""

import asyncio

from sqlalchemy import URL, MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.connections.identity import parse_name, worker_id_of
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox.log import Outbox, make_log_tables
from tests.log.rig import LogRig
from tests.waiting import eventually


async def test_owner_of_slots_begins_with_the_worker_id(rig: LogRig) -> None:
    reader = await rig.reader()
    await reader.member.leases.rebalance()
    owners = {row["owner"] for row in await rig.ask("select owner from {offsets}")}
    assert {worker_id_of(owner) for owner in owners} == {rig.outbox.client.identity.worker_id}


async def test_each_connection_says_what_it_is_for(rig: LogRig) -> None:
    client, reader = rig.outbox.client, await rig.reader()
    await client.attach(reader.member)
    await client.latest()

    async def roles() -> set[str]:
        rows = await rig.ask("select application_name from pg_stat_activity where datname = current_database()")
        found = [parse_name(row["application_name"]) for row in rows]
        return {each.role for each in found if each and each.worker_id == client.identity.worker_id}

    async def all_of_them() -> bool:
        return await roles() == {"read", "tick", "listen", "operate"}

    await client.operator_connection.open()
    await eventually(all_of_them)
    await client.detach(reader.member)


def test_member_of_another_event_loop_is_somebody_else(database_url: URL) -> None:
    engine = create_async_engine(database_url, poolclass=NullPool)
    outbox = Outbox(engine, tables=make_log_tables(MetaData(), "loops_of_members"))
    kept: list[Reader] = []

    async def scene() -> tuple[str | None, str]:
        await outbox.setup()
        if not kept:
            kept.append(Reader.of(outbox.client, Group("g"), outbox.options))
        (reader,) = kept
        await outbox.client.attach(reader.member)
        try:
            return worker_id_of(reader.member.leases.me), outbox.client.identity.worker_id
        finally:
            await outbox.client.detach(reader.member)
            await outbox.cleanup()

    first, second = asyncio.run(scene()), asyncio.run(scene())
    asyncio.set_event_loop_policy(None)
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert first[0] != second[0]
