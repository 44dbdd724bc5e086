"""A question that takes too long, or that may not be asked, fails for itself with an error that says so."""

import psycopg
import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.overview.overview import AskingConnection
from faststream_outbox.errors import InvalidOption, InvalidOptionType, OutboxError, QuestionTimedOut
from faststream_outbox.overview import Overview
from tests.connections.test_dedicated import sql
from tests.overview.conftest import Fill
from tests.publish.ways import plain


async def test_slow_question_says_what_to_do(driver_engine: AsyncEngine) -> None:
    connection = AskingConnection(driver_engine, timeout=30)
    await connection.open()
    connection.timeout = 0.2
    with pytest.raises(QuestionTimedOut, match=r"0\.2 seconds.*timeout=.*transaction that has been open"):
        await connection.fetch(sql("select pg_sleep(30)"), {})
    connection.timeout = 30
    assert [tuple(row) for row in await connection.fetch(sql("select 1"), {})] == [(1,)]
    await connection.close()


async def test_server_that_gives_up_first_is_understood(driver_engine: AsyncEngine) -> None:
    connection = AskingConnection(driver_engine, timeout=30)
    await connection.open()
    await connection._driver.execute("set statement_timeout = 50")
    with pytest.raises(QuestionTimedOut):
        await connection.fetch(sql("select pg_sleep(30)"), {})
    await connection.close()


async def test_questions_of_several_statements_have_their_time_together(driver_engine: AsyncEngine) -> None:
    connection = AskingConnection(driver_engine, timeout=30)
    await connection.open()

    async def nap_for_ever() -> None:
        async with connection.limited("everything"):
            while True:
                await connection.fetch(sql("select pg_sleep(0.01)"), {})

    connection.timeout = 0.5
    with pytest.raises(QuestionTimedOut, match=r"took more than 0\.5 seconds"):
        await nap_for_ever()
    await connection.close()


async def test_locked_table_makes_a_question_fail_and_nothing_else(
    engine: AsyncEngine, table: Table, fill: Fill, database_url: URL
) -> None:
    fill(1)
    overview = Overview(engine, table=table, timeout=30)
    assert [found.ready for found in await overview.queues()] == [1]
    overview._connection.timeout = 0.5
    with psycopg.connect(plain(database_url)) as other:
        other.execute("lock table outbox in access exclusive mode")
        with pytest.raises(QuestionTimedOut):
            await overview.queues()
        other.rollback()
    overview._connection.timeout = 30
    assert [found.ready for found in await overview.queues()] == [1]
    await overview.close()


async def test_server_that_is_not_there_is_no_slow_question(table: Table) -> None:
    overview = Overview(create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing"), table=table)
    with pytest.raises(ConnectionRefusedError) as caught:
        await overview.queues()
    assert not isinstance(caught.value, OutboxError)


async def test_closed_overview_opens_again(overview: Overview) -> None:
    for _ in range(2):
        assert list(await overview.queues()) == []
        await overview.close()


async def test_tables_and_times_that_cannot_be_are_refused(engine: AsyncEngine, table: Table, dlq_table: Table) -> None:
    with pytest.raises(InvalidOption, match="dead letters"):
        Overview(engine, table=dlq_table)
    with pytest.raises(InvalidOptionType):
        Overview(engine, log_tables=table)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="timeout"):
        Overview(engine, table=table, timeout=0)
    with pytest.raises(InvalidOption, match="lease_ttl_seconds"):
        Overview(engine, table=table, lease_ttl_seconds=-1)
