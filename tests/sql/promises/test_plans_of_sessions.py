"""What is sent on the application's connections is planned for the table as it is, also where it was empty before.

Their settings are not ours to change, and PostgreSQL keeps a plan of theirs until somebody analyses the table.
"""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from faststream_outbox._internal.connections.caller import CallerConnection
from faststream_outbox._internal.sql.statements import statements
from tests.sql.asked import Question, questions
from tests.sql.states import State, emptied

pytestmark = pytest.mark.slow

ENOUGH_FOR_A_GENERIC_PLAN = 12
NAMES = ("settle_within", "lock", "cancel_timer")


@pytest.fixture
def state(database_url: URL) -> object:
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with emptied(dsn) as state:
        yield state


@pytest.fixture(params=["asyncpg", "psycopg"])
async def connection(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"))
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


def asked(state: State) -> list[Question]:
    return [question for question in questions(state) if question.name in NAMES]


async def ask(connection: AsyncConnection, state: State, question: Question) -> int:
    """How often the whole table was read for it."""
    opened = CallerConnection(state.names, None, False, connection, "alchemy")
    counted = text(f"select pg_stat_get_xact_numscans('{state.names.table}'::regclass)")
    async with connection.begin() as transaction:
        before = int((await connection.execute(counted)).scalar_one())
        await opened.fetch(statements(question.file, state.names)[question.name], question.values)
        scans = int((await connection.execute(counted)).scalar_one()) - before
        await transaction.rollback()
    return scans


async def test_no_statement_reads_the_whole_table_that_was_empty_when_it_was_planned(
    connection: AsyncConnection, state: State
) -> None:
    for question in asked(state):
        for _ in range(ENOUGH_FOR_A_GENERIC_PLAN):
            await ask(connection, state, question)
    state.hold(1000)
    state.mix(unit=5_000, depth=10)
    found = {question.name: await ask(connection, state, question) for question in asked(state)}
    assert found == dict.fromkeys(NAMES, 0)
