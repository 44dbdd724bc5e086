"""Sessions are ended, locks and snapshots held, connections used up, as the strikes say, and nothing of it stays."""

import psycopg
import pytest

from tests.faults.machine.strikes.conftest import Lines, answers
from tests.faults.machine.strikes.locks import RowsLocked, TableLocked
from tests.faults.machine.strikes.sessions import ConnectionsFilled, Terminated
from tests.faults.machine.strikes.snapshots import PreparedHeld, SnapshotHeld
from tests.faults.machine.strikes.strike import NotNow, Strike
from tests.faults.machine.strikes.striking import Nobody, Tame, striking
from tests.faults.machine.world import OUTBOX, World
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]

NAMES = ["outbox 3f2a9c1b listen host/1", "outbox 3f2a9c1b claim host/1", "mine"]


@pytest.mark.parametrize(
    ("purpose", "ended"),
    [("all", [True, True, True]), ("listen", [True, False, False]), ("one", [False, True, False])],
)
async def test_sessions_of_a_purpose_are_ended(world: World, lines: Lines, purpose: str, ended: list[bool]) -> None:
    connections = [await lines.connect(name) for name in NAMES]
    async with striking(Terminated(purpose), world):
        pass
    assert [not await answers(connection) for connection in connections] == ended
    assert await answers(await lines.connect())


async def test_nobody_of_a_purpose_is_said(world: World) -> None:
    with pytest.raises(NotNow, match="no session for listen"):
        await Terminated("listen").strike(world, Nobody(), Tame())


async def test_nobody_gets_a_connection_for_a_while(world: World, lines: Lines) -> None:
    async def is_refused() -> bool:
        try:
            connection = await lines.connect()
        except psycopg.OperationalError as error:
            return "connection slots" in str(error)
        await connection.close()
        return False

    async with striking(ConnectionsFilled(), world):
        await eventually(is_refused)

    async def is_let_in() -> bool:
        return not await is_refused()

    await eventually(is_let_in)


async def test_rows_are_locked_for_a_while(world: World, lines: Lines) -> None:
    connection = await lines.connect()
    await connection.execute(f"insert into {OUTBOX} (queue, payload) values ('one', '1')".encode())
    question = f"select id from {OUTBOX} for update skip locked".encode()

    async def free() -> int:
        return len(await (await connection.execute(question)).fetchall())

    async with striking(RowsLocked(), world):
        assert await free() == 0
    assert await free() == 1
    await connection.execute(f"delete from {OUTBOX}".encode())


@pytest.mark.parametrize(("mode", "refused"), [("share", "row exclusive"), ("access exclusive", "access share")])
async def test_table_is_locked_for_a_while(world: World, lines: Lines, mode: str, refused: str) -> None:
    (table, *_) = await world.tables()
    connection = await lines.connect()

    async def is_refused() -> bool:
        try:
            async with connection.transaction():
                await connection.execute(f"lock table {table} in {refused} mode nowait".encode())
        except psycopg.errors.LockNotAvailable:
            return True
        return False

    async with striking(TableLocked(mode), world) as witness:
        await eventually(is_refused)
        assert witness.told[0][1] == table
    assert not await is_refused()


@pytest.mark.parametrize(
    ("strike", "where"),
    [
        (SnapshotHeld(), "pg_stat_activity where backend_xid is not null and state = 'idle in transaction'"),
        (PreparedHeld(), "pg_prepared_xacts"),
    ],
    ids=["idle in transaction", "prepared"],
)
async def test_old_transaction_is_held_for_a_while(world: World, strike: Strike, where: str) -> None:
    question = f"select 1 from {where}"
    async with striking(strike, world):
        await eventually(lambda: world.ask(question))
    assert await world.ask(question) == []
