"""A connection of the library's own: one statement, one transaction; after an error a fresh one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.errors import ConnectionUnusable
from faststream_outbox.schema.names import Names
from faststream_outbox.sql import Statement, _compiled
from faststream_outbox.sql.wire import Wire
from tests.publish.ways import plain


def sql(body: str) -> Statement:
    return _compiled("test", "A statement of a test.", body, Names("outbox", None, "unused"))


PID = sql("select pg_backend_pid()")
LEVEL = sql("select current_setting('transaction_isolation')")


@pytest.fixture
async def wire(driver_engine: AsyncEngine) -> AsyncIterator[Wire]:
    wire = Wire(driver_engine)
    yield wire
    await wire.close()


async def pid(wire: Wire) -> int:
    return int((await wire.fetch(PID, {}))[0][0])


async def test_rows_and_values_go_through(wire: Wire) -> None:
    rows = await wire.fetch(
        sql("select n, :text::text || n from unnest(:numbers::int[]) as n order by n"), {"text": "☃", "numbers": [2, 1]}
    )
    assert [tuple(row) for row in rows] == [(1, "☃1"), (2, "☃2")]


async def test_statement_without_rows_gives_none(wire: Wire, table: Table) -> None:
    assert list(await wire.fetch(sql("delete from outbox where id = :id"), {"id": 1})) == []


async def test_connection_is_opened_late_and_kept(wire: Wire) -> None:
    assert not wire.is_open
    assert await pid(wire) == await pid(wire)
    assert wire.is_open


async def test_each_statement_is_committed(wire: Wire, table: Table, database_url: URL) -> None:
    await wire.fetch(sql("insert into outbox (queue, payload) values (:queue, '')"), {"queue": "orders"})
    with psycopg.connect(plain(database_url)) as other:
        assert other.execute("select queue from outbox").fetchall() == [("orders",)]


async def test_killed_connection_is_thrown_away_and_the_next_statement_works(wire: Wire, database_url: URL) -> None:
    first = await pid(wire)
    with psycopg.connect(plain(database_url), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [first])
    with pytest.raises(Exception, match=r"terminat|closed|lost"):
        await pid(wire)
    assert not wire.is_open
    assert await pid(wire) != first


async def test_failed_statement_throws_the_connection_away(wire: Wire) -> None:
    first = await pid(wire)
    with pytest.raises(Exception, match="division by zero"):
        await wire.fetch(sql("select 1 / :zero::int"), {"zero": 0})
    assert not wire.is_open
    assert await pid(wire) != first


async def test_cancelled_statement_throws_the_connection_away_and_answers_do_not_mix(wire: Wire) -> None:
    first = await pid(wire)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.fetch(sql("select 'late', pg_sleep(0.3)"), {}), 0.1)
    assert not wire.is_open
    assert await pid(wire) != first


async def test_statement_that_takes_too_long_is_given_up(driver_engine: AsyncEngine) -> None:
    wire = Wire(driver_engine, timeout=0.2)
    with pytest.raises(TimeoutError):
        await wire.fetch(sql("select pg_sleep(5)"), {})
    assert not wire.is_open
    await wire.close()


async def test_statements_run_one_at_a_time_in_the_order_of_their_arrival(wire: Wire) -> None:
    ended: list[int] = []

    async def run(number: int) -> None:
        await wire.fetch(sql(f"select pg_sleep({0.05 if number == 0 else 0})"), {})
        ended.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(run(number))
    assert ended == [0, 1, 2, 3, 4]


async def test_closed_wire_opens_again(wire: Wire) -> None:
    first = await pid(wire)
    await wire.close()
    assert not wire.is_open
    assert await pid(wire) != first


async def test_pool_of_the_application_is_not_used(database_url: URL) -> None:
    for driver in ("asyncpg", "psycopg"):
        url = database_url.set(drivername=f"postgresql+{driver}")
        engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.5)
        async with engine.connect():
            wire = Wire(engine)
            assert await pid(wire)
            await wire.close()
        await engine.dispose()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_other_default_isolation_is_overruled(level: str, driver: str, database_url: URL, table: Table) -> None:
    settings = {"default_transaction_isolation": level}
    arguments: dict[str, Any] = {
        "asyncpg": {"server_settings": settings},
        "psycopg": {"options": f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"},
    }
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"), connect_args=arguments[driver])
    wire = Wire(engine)
    assert (await wire.fetch(sql("select current_setting('default_transaction_isolation')"), {}))[0][0] == level
    assert (await wire.fetch(LEVEL, {}))[0][0] == "read committed"
    await wire.fetch(sql("insert into outbox (queue, payload) values ('orders', '')"), {})
    with psycopg.connect(plain(database_url)) as other:
        assert other.execute("select count(*) from outbox").fetchall() == [(1,)]
    await wire.close()
    await engine.dispose()


async def test_isolation_level_of_the_engine_is_overruled(database_url: URL) -> None:
    for driver in ("asyncpg", "psycopg"):
        url = database_url.set(drivername=f"postgresql+{driver}")
        engine = create_async_engine(url, isolation_level="REPEATABLE READ")
        wire = Wire(engine)
        assert (await wire.fetch(LEVEL, {}))[0][0] == "read committed"
        await wire.close()
        await engine.dispose()


async def test_direct_connection_is_not_taken_for_a_pooled_one(wire: Wire) -> None:
    await pid(wire)
    assert not wire.pooled


async def test_unreachable_server_is_an_error_each_time_and_leaves_nothing_open() -> None:
    wire = Wire(create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing"))
    for _ in range(2):
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            await pid(wire)
        assert not wire.is_open


def test_driver_that_cannot_work_is_refused() -> None:
    class Engine:
        class dialect:  # noqa: N801 - stands for an attribute
            driver = "aiomysql"

    with pytest.raises(ConnectionUnusable, match=r"aiomysql.*asyncpg or psycopg"):
        Wire(Engine())  # type: ignore[arg-type]
