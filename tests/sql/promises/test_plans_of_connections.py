"""A plan that a connection has kept since the table was empty does not outlive the emptiness.

An idle outbox is vacuumed to nothing, and on nothing every index is too dear. PostgreSQL keeps such a plan
while the table grows, until somebody analyses it. The settings of the application's connections are not ours to change.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.caller import CallerConnection
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement, statements
from tests.publish.ways import plain
from tests.sql.asked import Question, questions, rounds
from tests.sql.states import State, emptied

pytestmark = pytest.mark.slow

ENOUGH_FOR_A_GENERIC_PLAN = 12
OF_THE_APPLICATION = ("settle_within", "lock", "cancel_timer")
FLUSH = Statement("flush", "", "select pg_stat_force_next_flush()", "select pg_stat_force_next_flush()", ())


@pytest.fixture
def state(database_url: URL) -> Iterator[State]:
    with emptied(plain(database_url)) as state:
        yield state


@pytest.fixture
async def dedicated(driver_engine: AsyncEngine) -> AsyncIterator[DedicatedConnection]:
    connection = DedicatedConnection(driver_engine)
    yield connection
    await connection.close()


async def guilty(
    state: State, asked: Callable[[], list[Question]], ask: Callable[[Question], Awaitable[int]]
) -> dict[str, int]:
    """What reads the whole table, and how often, once it has grown since it was asked first."""
    for question in asked():
        for _ in range(ENOUGH_FOR_A_GENERIC_PLAN):
            await ask(question)
    state.hold(1000)
    state.mix(unit=5_000, depth=100)
    # What this connection read of the table is counted now, and not ten seconds later as somebody else's.
    state.execute(FLUSH.dollar)
    return {question.name: scans for question in asked() if (scans := await ask(question))}


async def test_the_librarys_own_statements_read_no_whole_table_that_was_empty_when_they_were_planned(
    dedicated: DedicatedConnection, state: State
) -> None:
    def asked() -> list[Question]:
        found = [*questions(state), *rounds(state)]
        return [one for one in found if one.file != "publish" and one.name not in OF_THE_APPLICATION]

    async def scans() -> int:
        await dedicated.fetch(FLUSH, {})
        row = state.execute(f"select pg_stat_get_numscans('{state.names.table}'::regclass)").fetchone()
        assert row is not None
        return int(row[0])

    async def ask(question: Question) -> int:
        before = await scans()
        await dedicated.fetch(statements(question.file, state.names)[question.name], question.values)
        return await scans() - before

    assert await guilty(state, asked, ask) == {}


async def test_statements_on_the_applications_connections_read_none_either(
    driver_engine: AsyncEngine, state: State
) -> None:
    counted = text(f"select pg_stat_get_xact_numscans('{state.names.table}'::regclass)")

    def asked() -> list[Question]:
        return [question for question in questions(state) if question.name in OF_THE_APPLICATION]

    async with driver_engine.connect() as connection:
        opened = CallerConnection(state.names, None, False, connection, "alchemy")

        async def ask(question: Question) -> int:
            async with connection.begin() as transaction:
                before = int((await connection.execute(counted)).scalar_one())
                await opened.fetch(statements(question.file, state.names)[question.name], question.values)
                scans = int((await connection.execute(counted)).scalar_one()) - before
                await transaction.rollback()
            return scans

        assert await guilty(state, asked, ask) == {}
