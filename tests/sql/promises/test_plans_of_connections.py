"""A plan that a connection has kept since the table was empty does not outlive the emptiness.

An idle outbox is vacuumed to nothing, and on nothing every index is too dear. PostgreSQL keeps such a plan
while the table grows, until somebody analyses it.
"""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement, statements
from tests.sql.asked import Question, questions, rounds
from tests.sql.promises.test_plans_of_sessions import NAMES
from tests.sql.states import State, emptied

pytestmark = pytest.mark.slow

ENOUGH_FOR_A_GENERIC_PLAN = 12

FLUSH = Statement("flush", "", "select pg_stat_force_next_flush()", "select pg_stat_force_next_flush()", ())


@pytest.fixture
def state(database_url: URL) -> object:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with emptied(dsn) as state:
        yield state


@pytest.fixture(params=["asyncpg", "psycopg"])
async def connection(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[DedicatedConnection]:
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"))
    connection = DedicatedConnection(engine)
    yield connection
    await connection.close()
    await engine.dispose()


def asked(state: State) -> list[Question]:
    found = [*questions(state), *rounds(state)]
    # `through` sends the others on the application's connections.
    return [question for question in found if question.file != "publish" and question.name not in NAMES]


async def ask(connection: DedicatedConnection, state: State, question: Question) -> None:
    await connection.fetch(statements(question.file, state.names)[question.name], question.values)


async def seq_scans(connection: DedicatedConnection, state: State) -> int:
    await connection.fetch(FLUSH, {})
    row = state.execute(f"select pg_stat_get_numscans('{state.names.table}'::regclass)").fetchone()
    assert row is not None
    return int(row[0])


async def test_no_statement_reads_the_whole_table_that_was_empty_when_it_was_planned(
    connection: DedicatedConnection, state: State
) -> None:
    for question in asked(state):
        for _ in range(ENOUGH_FOR_A_GENERIC_PLAN):
            await ask(connection, state, question)
    state.hold(1000)
    state.mix(unit=5_000, depth=100)
    # What this connection read of the table is counted now, and not ten seconds later as somebody else's.
    state.execute(FLUSH.dollar)
    guilty: dict[str, int] = {}
    for question in asked(state):
        before = await seq_scans(connection, state)
        await ask(connection, state, question)
        if more := await seq_scans(connection, state) - before:
            guilty[question.name] = more
    assert not guilty
