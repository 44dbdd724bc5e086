"""Who works on the tables, by the names of their connections; and rates between two questions."""

import os
from datetime import UTC, datetime

import psycopg
from sqlalchemy import URL, Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import Identity
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.overview.processes import NOTHING_YET, Rates, grouped, rates_between
from faststream_outbox._internal.sql.overview_rows import ConnectionRow, WrittenRow
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.overview import Overview, Process
from tests.cases import each
from tests.overview.conftest import Fill
from tests.publish.ways import plain
from tests.waiting import eventually

EARLY, LATE = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)
NOW = WrittenRow(140, 70, 6, 1010.0, False)


def by_id(processes: list[Process] | tuple[Process, ...], worker_id: str) -> Process:
    (found,) = [process for process in processes if process.worker_id == worker_id]
    return found


async def test_connections_of_one_client_are_one_process(overview: Overview, engine: AsyncEngine) -> None:
    identity = Identity()
    claim = DedicatedConnection(engine, identity=identity, role="claim")
    settle = DedicatedConnection(engine, identity=identity, role="settle")
    await claim.open()
    await settle.open()
    found = by_id(list(await overview.processes()), identity.worker_id)
    assert (found.pid, found.roles, len(found.backend_pids)) == (os.getpid(), ("claim", "settle"), 2)
    assert found.connected_since is not None
    assert (found.leases, found.slots) == (0, 0)
    await claim.close()
    await settle.close()


async def test_leases_of_a_process_are_counted(overview: Overview, engine: AsyncEngine, fill: Fill) -> None:
    identity = Identity()
    connection = DedicatedConnection(engine, identity=identity, role="claim")
    await connection.open()
    token = f"'{identity.token()}'"
    for key in ("null", "'k' || n"):
        fill(2, key=key, acquired_token=token, acquired_at="now()")
        fill(1, key=key, acquired_token=token, acquired_at="now() - interval '1 day'")
    fill(3, queue="mails", priority="4", acquired_token=token, acquired_at="now()")
    fill(1, acquired_token="gen_random_uuid()", acquired_at="now()")
    assert by_id(list(await overview.processes()), identity.worker_id).leases == 7
    await connection.close()


async def test_slots_of_a_process_are_counted(driver_engine: AsyncEngine) -> None:
    tables = make_log_tables(MetaData(), "seen_log")
    async with Outbox(driver_engine, tables=tables) as outbox:
        await outbox.setup()
        for group in ("billing", "mails"):
            reader = Reader.of(outbox.client, Group(group), outbox.options)
            await reader.member.leases.heartbeat()
            await reader.member.leases.rebalance()
        overview = Overview(driver_engine, log_tables=tables)
        assert by_id(list(await overview.processes()), outbox.client.identity.worker_id).slots == 512
        await overview.close()
        async with driver_engine.begin() as connection:
            for table in tables.all:
                await connection.execute(text(f"drop table {table.name} cascade"))


async def test_names_of_strangers_are_passed_over(overview: Overview, database_url: URL, table: Table) -> None:
    for name in ("outbox", "outbox <script>", "outbox 3f2a9c1b claim nowhere/", "outbox  "):
        with psycopg.connect(plain(database_url), application_name=name):
            assert all(process.pid == os.getpid() for process in await overview.processes())


async def test_overview_itself_is_shown(overview: Overview) -> None:
    assert any("overview" in process.roles for process in await overview.processes())


def test_processes_come_by_host_and_pid() -> None:
    rows = [
        ConnectionRow(1, "outbox 00000001 claim web-b/9", EARLY),
        ConnectionRow(2, "outbox 00000002 claim web-a/10 shop", LATE),
        ConnectionRow(3, "outbox 00000003 claim web-a/9", None),
        ConnectionRow(4, "outbox 00000002 read web-a/10", EARLY),
        ConnectionRow(5, "psql", EARLY),
    ]
    assert grouped(rows, {"00000001": 7}, {"00000002": 256}) == [
        Process("00000003", "web-a", 9, ("claim",), (3,), None, 0, 0),
        Process("00000002", "web-a", 10, ("claim", "read"), (2, 4), EARLY, 0, 256, "shop"),
        Process("00000001", "web-b", 9, ("claim",), (1,), EARLY, 7, 0),
    ]


def test_rates_are_differences_over_time() -> None:
    before, now = WrittenRow(100, 50, 5, 1000.0, False), WrittenRow(140, 70, 6, 1010.0, False)
    assert rates_between(before, now) == Rates(4.0, 2.0, 0.1, 10.0)
    without_dead_letters = rates_between(before._replace(died=None), now._replace(died=None))
    assert without_dead_letters == Rates(4.0, 2.0, None, 10.0)


@each(
    ("before", "is_standby"),
    [
        (None, False),
        (NOW._replace(inserted=999), False),  # the statistics began anew
        (NOW, False),  # no time has passed
        (NOW._replace(at=0.0), True),
    ],
)
def test_nothing_is_said_without_something_to_compare_with(before: WrittenRow | None, is_standby: bool) -> None:
    assert rates_between(before, NOW._replace(is_standby=is_standby)) == NOTHING_YET


async def test_server_counts_what_is_published_and_finished(
    driver_engine: AsyncEngine, table: Table, dlq_table: Table, fill: Fill, sync_engine: Engine
) -> None:
    overview = Overview(driver_engine, table=table, dlq_table=dlq_table)
    assert await overview.rates() == NOTHING_YET
    published = finished = 0.0
    fill(20)
    with sync_engine.begin() as connection:
        connection.execute(text("delete from outbox where id in (select id from outbox limit 5)"))
    # Server processes report when they have time, or end.
    sync_engine.dispose()

    async def all_is_counted() -> bool:
        nonlocal published, finished
        rates = await overview.rates()
        published += (rates.published or 0) * rates.seconds
        finished += (rates.finished or 0) * rates.seconds
        return (round(published), round(finished)) == (20, 5)

    await eventually(all_is_counted)
    await overview.close()
