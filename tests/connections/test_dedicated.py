"""A connection of the library's own: one statement, one transaction; after an error a fresh one."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Table, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections import dedicated
from faststream_outbox._internal.connections import opening as settings
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.statements import Statement, _compiled
from faststream_outbox.errors import ConnectionUnusable
from tests.publish.ways import plain
from tests.waiting import eventually


def sql(body: str) -> Statement:
    return _compiled("test", "A statement of a test.", body, Names("outbox", None, "unused"))


PID = sql("select pg_backend_pid()")
LEVEL = sql("select current_setting('transaction_isolation')")


@pytest.fixture
async def connection(driver_engine: AsyncEngine) -> AsyncIterator[DedicatedConnection]:
    connection = DedicatedConnection(driver_engine)
    yield connection
    await connection.close()


@asynccontextmanager
async def opened_over(url: URL, driver: str, **options: Any) -> AsyncGenerator[tuple[DedicatedConnection, AsyncEngine]]:
    """A connection over an engine that is made in another way."""
    engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"), **options)
    connection = DedicatedConnection(engine)
    yield connection, engine
    await connection.close()
    await engine.dispose()


async def pid(connection: DedicatedConnection) -> int:
    return int((await connection.fetch(PID, {}))[0][0])


async def test_rows_and_values_go_through(connection: DedicatedConnection) -> None:
    rows = await connection.fetch(
        sql("select n, :text::text || n from unnest(:numbers::int[]) as n order by n"), {"text": "☃", "numbers": [2, 1]}
    )
    assert [tuple(row) for row in rows] == [(1, "☃1"), (2, "☃2")]


async def test_statement_without_rows_gives_none(connection: DedicatedConnection, table: Table) -> None:
    assert list(await connection.fetch(sql("delete from outbox where id = :id"), {"id": 1})) == []


async def test_connection_is_opened_late_and_kept_and_not_taken_for_a_pooled_one(
    connection: DedicatedConnection,
) -> None:
    assert not connection.is_open
    assert await pid(connection) == await pid(connection)
    assert (connection.is_open, connection.pooled) == (True, False)


async def test_each_statement_is_committed(connection: DedicatedConnection, table: Table, database_url: URL) -> None:
    await connection.fetch(sql("insert into outbox (queue, payload) values (:queue, '')"), {"queue": "orders"})
    with psycopg.connect(plain(database_url)) as other:
        assert other.execute("select queue from outbox").fetchall() == [("orders",)]


async def test_killed_connection_is_thrown_away_and_the_next_statement_works(
    connection: DedicatedConnection, database_url: URL
) -> None:
    first = await pid(connection)
    with psycopg.connect(plain(database_url), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [first])
    with pytest.raises(Exception, match=r"terminat|closed|lost"):
        await pid(connection)
    assert not connection.is_open
    assert await pid(connection) != first


async def test_failed_statement_throws_the_connection_away(connection: DedicatedConnection) -> None:
    first = await pid(connection)
    with pytest.raises(Exception, match="division by zero"):
        await connection.fetch(sql("select 1 / :zero::int"), {"zero": 0})
    assert not connection.is_open
    assert await pid(connection) != first


async def test_cancelled_statement_throws_the_connection_away_and_answers_do_not_mix(
    connection: DedicatedConnection,
) -> None:
    first = await pid(connection)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.fetch(sql("select 'late', pg_sleep(0.3)"), {}), 0.1)
    assert not connection.is_open
    assert await pid(connection) != first


async def test_statement_that_takes_too_long_is_given_up(driver_engine: AsyncEngine) -> None:
    connection = DedicatedConnection(driver_engine, timeout=0.2)
    with pytest.raises(TimeoutError):
        await connection.fetch(sql("select pg_sleep(5)"), {})
    assert not connection.is_open
    await connection.close()


async def test_socket_that_is_opened_while_a_statement_is_given_up_is_heard(psycopg_engine: AsyncEngine) -> None:
    """It may be given the number of the file that was closed, and the event loop must not take it for that one."""
    connection = DedicatedConnection(psycopg_engine)
    await connection.open()
    driver: Any = connection._driver
    number = driver.fileno()
    running = asyncio.create_task(connection.fetch(sql("select pg_sleep(60)"), {}))
    await eventually(lambda: driver.info.transaction_status.name == "ACTIVE")
    running.cancel()
    heard = asyncio.Event()
    with contextlib.ExitStack() as stack:
        opened: dict[int, socket.socket] = {}
        while number not in opened:
            await asyncio.sleep(0)
            for one, other in (pair := socket.socketpair()), pair[::-1]:
                stack.enter_context(one)
                opened[one.fileno()] = other
        asyncio.get_running_loop().add_reader(number, heard.set)
        await asyncio.wait([running])
        opened[number].send(b"!")
        await asyncio.wait_for(heard.wait(), 30.0)
        asyncio.get_running_loop().remove_reader(number)
    await connection.close()


class Standstill(dict[str, Any]):
    """Values that stop the event loop when they are first asked for, as a machine does that is far too busy."""

    def __init__(self, stop: Callable[[], None], **values: Any) -> None:
        super().__init__(values)
        self._stop: Callable[[], None] | None = stop

    def __getitem__(self, name: str) -> Any:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        return super().__getitem__(name)


@pytest.mark.parametrize("is_sent", [False, True], ids=["before it is sent", "before it is answered"])
@pytest.mark.parametrize("is_explicit", [False, True], ids=["several statements", "one behind a pooler"])
async def test_transaction_that_the_server_ended_while_the_loop_stood_still_runs_again(
    driver_engine: AsyncEngine,
    database_url: URL,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_sent: bool,
    is_explicit: bool,
) -> None:
    limits, idle = settings.limits_of, iter(["100"])

    def impatient_once(*given: Any) -> dict[str, str]:
        return {**limits(*given), "idle_in_transaction_session_timeout": next(idle, "60000")}

    def until_the_server_ends_it() -> None:
        with psycopg.connect(plain(database_url), autocommit=True) as other:
            while other.execute("select 1 from pg_stat_activity where pid = %s", [backend]).fetchall():
                time.sleep(0.01)

    def stop() -> None:
        if is_sent:
            # The answer and the end of the connection are then read at once.
            asyncio.get_running_loop().call_soon(until_the_server_ends_it)
        else:
            until_the_server_ends_it()

    monkeypatch.setattr(dedicated, "IDLE_IN_TRANSACTION", 0.1)
    monkeypatch.setattr(settings, "limits_of", impatient_once)
    connection = DedicatedConnection(driver_engine)
    backend = await pid(connection)
    insert = sql("insert into outbox (queue, payload) values (:queue, '') returning id")
    count = sql("select count(*) from outbox where queue = :queue")
    # Both are prepared by now: the server waits for nothing but the next statement.
    for statement in (insert, count):
        await connection.fetch(statement, {"queue": "others"})
    if is_explicit:
        connection._explicit = True
        await connection.fetch(insert, Standstill(stop, queue="orders"))
    else:
        steps = [(insert, {"queue": "orders"}), (count, Standstill(stop, queue="orders"))]
        assert (await connection.fetch_each(steps))[1][0][0] == 1
    assert connection.openings == 2
    (found,) = await connection.fetch(count, {"queue": "orders"})
    await connection.close()
    assert found[0] == 1


async def test_statements_run_one_at_a_time_in_the_order_of_their_arrival(connection: DedicatedConnection) -> None:
    ended: list[int] = []

    async def run(number: int) -> None:
        await connection.fetch(sql(f"select pg_sleep({0.05 if number == 0 else 0})"), {})
        ended.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(run(number))
    assert ended == [0, 1, 2, 3, 4]


async def test_closed_connection_opens_again(connection: DedicatedConnection) -> None:
    first = await pid(connection)
    await connection.close()
    assert not connection.is_open
    assert await pid(connection) != first


async def test_connection_whose_closing_was_cancelled_opens_again(connection: DedicatedConnection) -> None:
    await pid(connection)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert await pid(connection)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_pool_of_the_application_is_not_used(driver: str, database_url: URL) -> None:
    full = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.5}
    async with opened_over(database_url, driver, **full) as (connection, engine), engine.connect():
        assert await pid(connection)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_other_default_isolation_is_overruled(level: str, driver: str, database_url: URL, table: Table) -> None:
    settings = {"default_transaction_isolation": level}
    arguments: dict[str, Any] = {
        "asyncpg": {"server_settings": settings},
        "psycopg": {"options": f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"},
    }
    default = sql("select current_setting('default_transaction_isolation')")
    async with opened_over(database_url, driver, connect_args=arguments[driver]) as (connection, _):
        assert (await connection.fetch(default, {}))[0][0] == level
        assert (await connection.fetch(LEVEL, {}))[0][0] == "read committed"
        await connection.fetch(sql("insert into outbox (queue, payload) values ('orders', '')"), {})
        with psycopg.connect(plain(database_url)) as other:
            assert other.execute("select count(*) from outbox").fetchall() == [(1,)]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_isolation_level_of_the_engine_is_overruled(driver: str, database_url: URL) -> None:
    async with opened_over(database_url, driver, isolation_level="REPEATABLE READ") as (connection, _):
        assert (await connection.fetch(LEVEL, {}))[0][0] == "read committed"


async def test_unreachable_server_is_an_error_each_time_and_leaves_nothing_open() -> None:
    connection = DedicatedConnection(create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing"))
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            await pid(connection)
        assert not connection.is_open


def test_driver_that_cannot_work_is_refused() -> None:
    class Engine:
        class dialect:  # noqa: N801 - stands for an attribute
            driver = "aiomysql"

    with pytest.raises(ConnectionUnusable, match=r"aiomysql.*asyncpg or psycopg"):
        DedicatedConnection(Engine())  # type: ignore[arg-type]


async def cancelled_while_it_connects(engine: AsyncEngine, work: Coroutine[Any, Any, None]) -> None:
    """Cancel the work as soon as the engine has connected."""

    def cancel_in_the_midst(connection: Any, _: object) -> None:
        working.cancel()
        cursor = connection.cursor()
        cursor.execute("select 1")
        cursor.close()

    event.listen(engine.sync_engine, "connect", cancel_in_the_midst)
    working = asyncio.create_task(work)
    await asyncio.wait([working])
    assert working.cancelled()


async def test_cancelled_opening_leaves_no_connection(driver_engine: AsyncEngine, database_url: URL) -> None:
    before = backends(database_url)
    await cancelled_while_it_connects(driver_engine, DedicatedConnection(driver_engine).open())
    await eventually(lambda: backends(database_url) <= before)


def backends(database_url: URL) -> set[Any]:
    asked = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with psycopg.connect(plain(database_url)) as connection:
        return set(connection.execute(asked.encode()).fetchall())
