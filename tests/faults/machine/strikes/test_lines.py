"""The line to PostgreSQL is cut, half-closed, silent or late as the strikes say, and sound again after them."""

import asyncio

import nats
import psycopg
import pytest

from tests.faults.machine.strikes.conftest import Connection, Lines, answers
from tests.faults.machine.strikes.lines import (
    AnswersLost,
    BlackHole,
    CommitAnswersLost,
    Cut,
    HalfClosed,
    Late,
    NatsCut,
    RequestsLost,
    Slow,
)
from tests.faults.machine.strikes.strike import NotHere, Strike
from tests.faults.machine.strikes.striking import Nobody, Tame, striking
from tests.faults.machine.world import World
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


async def written(world: World) -> list[int]:
    return [number for (number,) in await world.ask("select number from written")]


async def is_broken(connection: Connection) -> bool:
    return not await answers(connection)


async def test_connections_are_reset(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    async with striking(Cut(), world):
        assert await is_broken(connection)
    assert await answers(await lines.connect())


@pytest.mark.parametrize("direction", [0, 1])
async def test_one_end_hears_a_goodbye(world: World, lines: Lines, direction: int) -> None:
    connection = await lines.connect()
    async with striking(HalfClosed(), world, chance=Tame(direction)):
        assert await is_broken(connection)
    assert await answers(await lines.connect())


async def test_server_acts_and_its_answer_is_lost(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    async with striking(AnswersLost(), world):
        insert = asyncio.create_task(connection.execute("insert into written values (1)"))

        async def is_written() -> bool:
            return await written(world) == [1]

        await eventually(is_written)
    with pytest.raises(psycopg.OperationalError):
        await insert
    assert await answers(await lines.connect())


async def test_request_is_lost(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    async with striking(RequestsLost(), world):
        insert = asyncio.create_task(connection.execute("insert into written values (1)"))
    with pytest.raises(psycopg.OperationalError):
        await insert
    assert await written(world) == []
    assert await answers(await lines.connect())


async def test_only_the_answer_to_commit_is_lost(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    async with striking(CommitAnswersLost(), world) as witness:
        await connection.execute("begin")
        await connection.execute("insert into written values (1)")
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("commit")
        assert witness.words[0] == "struck answers to COMMIT lost"
    assert await written(world) == [1]
    assert await answers(await lines.connect())


@pytest.mark.parametrize("strike", [Late(), Slow()], ids=lambda strike: strike.kind)
async def test_bad_line_passes_everything_on(world: World, lines: Lines, strike: Strike) -> None:
    connection = await lines.connect()
    async with striking(strike, world):
        assert len(world.line.troubles) == 1
        assert await answers(connection)
    assert (world.line.troubles, await answers(connection)) == ([], True)


async def test_nothing_arrives_either_way(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    swallowed = world.line.swallowed
    async with striking(BlackHole(), world):
        insert = asyncio.create_task(connection.execute("insert into written values (1)"))
        await eventually(lambda: world.line.swallowed > swallowed)
    with pytest.raises(psycopg.OperationalError):
        await insert
    assert await written(world) == []
    assert await answers(await lines.connect())


async def test_some_connections_are_hit_and_others_are_not(world: World, lines: Lines) -> None:
    connections = [await lines.connect() for _ in range(20)]
    async with striking(Cut(), world, chance=Tame(2)):
        alive = [await answers(connection) for connection in connections]
    assert {True, False} == set(alive)


async def test_world_without_nats_says_so(world: World) -> None:
    with pytest.raises(NotHere, match="no NATS"):
        await NatsCut().strike(world, Nobody(), Tame())


async def test_nats_is_cut_and_there_again() -> None:
    lost = asyncio.Event()

    async def has_lost() -> None:
        lost.set()

    async with World.standing(1, standby=False, pooler=False, nats=True) as world:
        assert world.nats is not None
        client = await nats.connect(world.nats, disconnected_cb=has_lost, reconnect_time_wait=0.05)
        async with striking(NatsCut(), world):
            await lost.wait()
        await eventually(lambda: client.is_connected)
        await client.flush()
        await client.close()
