"""Servers are restarted, crashed and exchanged as the strikes say, and what was acknowledged is there after it."""

import asyncio
from collections.abc import AsyncIterator

import nats
import psycopg
import pytest
import pytest_asyncio

from tests.faults.machine.pair import Ending
from tests.faults.machine.strikes.conftest import Lines, answers
from tests.faults.machine.strikes.servers import (
    BackendKilled,
    FailedOver,
    NatsRestarted,
    PoolerRestarted,
    PostgresRestarted,
)
from tests.faults.machine.strikes.strike import NotHere
from tests.faults.machine.strikes.striking import Nobody, Tame, striking
from tests.faults.machine.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """Everything that there can be."""
    async with World.standing(1, standby=True, pooler=True, nats=True) as world:
        yield world


async def write(lines: Lines) -> None:
    await (await lines.connect()).execute("insert into written values (1)")


async def has_it(world: World) -> bool:
    return await world.ask("select number from written") == [(1,)]


@pytest.mark.parametrize("how", ["fast", "immediate", "sigquit"])
async def test_primary_is_another_process_with_the_same_data(world: World, lines: Lines, how: Ending) -> None:
    await write(lines)
    connection, pid = await lines.connect(), world.pair.primary.pid
    async with striking(PostgresRestarted(how), world):
        pass
    assert pid != world.pair.primary.pid
    assert (await answers(connection), await answers(await lines.connect())) == (False, True)
    assert await has_it(world)


async def test_backend_dies_and_the_server_recovers_without_a_restart(world: World, lines: Lines) -> None:
    await write(lines)
    connections, pid = [await lines.connect() for _ in range(3)], world.pair.primary.pid
    async with striking(BackendKilled(), world):
        pass
    assert pid == world.pair.primary.pid
    assert [await answers(connection) for connection in connections] == [False] * 3
    assert await has_it(world)


@pytest.mark.parametrize("how", [0, 1], ids=["fast", "immediate"])
async def test_standby_takes_over_with_everything_that_was_acknowledged(world: World, lines: Lines, how: int) -> None:
    pid, address = world.pair.primary.pid, world.direct
    acknowledged = list[int]()

    async def write_on() -> None:
        connection = await lines.connect()
        for number in range(100_000):
            await connection.execute("insert into written values (%s)", (number,))
            acknowledged.append(number)

    writer = asyncio.create_task(write_on())
    await eventually(lambda: len(acknowledged) > 20)
    async with striking(FailedOver(), world, chance=Tame(how)):
        pass
    with pytest.raises(psycopg.OperationalError):
        await writer
    assert world.direct != address
    assert world.pair.primary.pid != pid
    there = {number for (number,) in await world.ask("select number from written")}
    assert set(acknowledged) <= there
    assert await answers(await lines.connect())


async def test_next_failover_finds_a_standby(world: World, lines: Lines) -> None:
    await write(lines)
    for _ in range(2):
        async with striking(FailedOver(), world):
            pass
    assert await has_it(world)
    assert await world.ask("select sync_state from pg_stat_replication") == [("sync",)]


async def test_clients_of_the_pooler_lose_it_and_find_it_again(world: World, lines: Lines) -> None:
    assert world.pooled is not None
    await write(lines)
    client = await psycopg.AsyncConnection.connect(world.pooled, autocommit=True)
    async with striking(PoolerRestarted(), world):
        await eventually(lambda: answers_not(client))
    async with await psycopg.AsyncConnection.connect(world.pooled, autocommit=True) as again:
        assert await (await again.execute("select number from written")).fetchall() == [(1,)]


async def answers_not(connection: psycopg.AsyncConnection[tuple[int]]) -> bool:
    return not await answers(connection)


async def test_pooler_follows_a_failover(world: World, lines: Lines) -> None:
    assert world.pooled is not None
    await write(lines)
    async with striking(FailedOver(), world):
        pass

    async def is_there() -> bool:
        assert world.pooled is not None
        try:
            async with await psycopg.AsyncConnection.connect(world.pooled, autocommit=True) as client:
                return await (await client.execute("select number from written")).fetchall() == [(1,)]
        except psycopg.OperationalError:
            return False

    await eventually(is_there)


async def test_nats_ends_and_has_its_streams_again(world: World) -> None:
    assert world.nats is not None
    assert world.nats_server is not None
    await world.nats_server.make_stream("orders", "orders.>")
    lost = asyncio.Event()

    async def has_lost() -> None:
        lost.set()

    client = await nats.connect(world.nats, disconnected_cb=has_lost, reconnect_time_wait=0.05)
    await client.jetstream().publish("orders.1", b"1")
    async with striking(NatsRestarted(), world):
        await lost.wait()
    await eventually(lambda: client.is_connected)
    assert [body for body, _ in await world.nats_server.stored("orders")] == [b"1"]
    await client.close()


async def test_what_is_not_there_is_said() -> None:
    async with World.standing(1, standby=False, pooler=False, nats=False) as world:
        for strike in (FailedOver(), PoolerRestarted(), NatsRestarted()):
            with pytest.raises(NotHere, match="in this world"):
                await strike.strike(world, Nobody(), Tame())
