"""What operators do while everything runs is done, and what it was done to is as before."""

from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from tests.faults.machine.stage import REVIVED, SOUGHT_GROUP
from tests.faults.machine.strikes.conftest import Lines
from tests.faults.machine.strikes.disk import SPACE, DiskFull
from tests.faults.machine.strikes.operators import Revived, Sought
from tests.faults.machine.strikes.strike import NotHere
from tests.faults.machine.strikes.striking import Nobody, Tame, striking
from tests.faults.machine.strikes.upkeep import Upkeep
from tests.faults.machine.world import DEAD_LETTERS, LOG, OUTBOX, World
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


class Chosen(Tame):
    """A chance that takes what it was told to."""

    def __init__(self, one: str) -> None:
        super().__init__()
        self._one = one

    def choice(self, seq: Any) -> Any:
        assert self._one in seq
        return self._one


async def test_group_is_put_elsewhere(world: World) -> None:
    engine = create_async_engine(world.direct.replace("postgresql://", "postgresql+asyncpg://"))
    async with Outbox(engine, tables=make_log_tables(MetaData(), LOG), listen=False) as log:
        async with engine.begin() as connection:
            await log.publish(connection, OutboxMessage("orders/1", 1))
        async with engine.begin() as connection:
            await log.seek(connection, "latest", SOUGHT_GROUP, create=True)
        assert [lag.messages for lag in await log.lag(SOUGHT_GROUP)] == [0]
        async with striking(Sought(), world) as witness:
            pass
        assert witness.told[0][1] == f"group={SOUGHT_GROUP} to=earliest"
        assert [lag.messages for lag in await log.lag(SOUGHT_GROUP)] == [1]
    await engine.dispose()


async def test_dead_letters_of_one_queue_go_back(world: World) -> None:
    for queue in (REVIVED, "another"):
        await world.ask(
            f"insert into {DEAD_LETTERS} (original_id, message_id, queue, payload, headers, priority, attempts_count,"
            " deliveries_count, created_at, failed_at, failure_reason)"
            " values (1, gen_random_uuid(), %s, '1', '{}', 0, 1, 1, now(), now(), 'rejected')",
            queue,
        )
    async with striking(Revived(), world):
        pass
    assert await world.ask(f"select queue from {OUTBOX}") == [(REVIVED,)]
    assert await world.ask(f"select queue from {DEAD_LETTERS}") == [("another",)]
    await world.ask(f"delete from {OUTBOX}")


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("vacuum full", f"select pg_relation_filenode('{OUTBOX}')"),
        ("reindex table concurrently", f"select min(indexrelid) from pg_index where indrelid = '{OUTBOX}'::regclass"),
        ("analyze", f"select analyze_count from pg_stat_all_tables where relname = '{OUTBOX}'"),
    ],
)
async def test_table_is_looked_after(world: World, command: str, question: str) -> None:
    before = await world.ask(question)
    async with striking(Upkeep(command), world, chance=Chosen(OUTBOX)) as witness:
        pass
    assert witness.told[0][1] == OUTBOX
    after = await world.ask(question)
    assert before != after


async def test_disk_is_full_and_has_room_again(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    insert = (
        f"insert into {OUTBOX} (queue, payload) select 'big', repeat('x', 1900)::bytea from generate_series(1, 500)"
    )

    async def is_full() -> bool:
        try:
            await connection.execute(insert.encode())
        except psycopg.errors.DiskFull:
            return True
        return False

    try:
        async with striking(DiskFull(), world):
            await eventually(is_full)
    except NotHere as reason:
        pytest.skip(str(reason))
    assert not await is_full()
    assert await world.ask("select 1 from pg_tablespace where spcname = %s", SPACE) == []
    assert str(world.pair.primary.data) not in Path("/proc/mounts").read_text()
    await world.ask(f"delete from {OUTBOX}")


async def test_nothing_to_look_after_is_said() -> None:
    async with World.standing(1, standby=False, pooler=False, nats=False) as empty:
        for strike in (Sought(), Revived(), Upkeep("analyze"), DiskFull()):
            with pytest.raises(NotHere, match="no table"):
                await strike.strike(empty, Nobody(), Random(1))
