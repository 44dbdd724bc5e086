"""The proxy does to a line what it is told, and to no other line."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL

from tests.faults.link import Direction
from tests.faults.proxy import Proxy, Way, proxy_to
from tests.faults.trouble import ANSWERS, COMMITTED, REQUESTS, Trouble
from tests.waiting import eventually

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def proxy(database_url: URL) -> AsyncIterator[Proxy]:
    async with proxy_to(database_url.port or 5432) as proxy:
        yield proxy


class Lines:
    """Connections through the proxy, and one beside it."""

    def __init__(self, url: URL, port: int) -> None:
        plain = url.set(drivername="postgresql")
        self._near = plain.render_as_string(hide_password=False)
        self._far = plain.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        self._open: list[Connection] = []

    async def connect(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(self._far, autocommit=True)
        self._open.append(connection)
        return connection

    async def ask(self, question: str) -> list[Any]:
        """Beside the proxy."""
        async with await psycopg.AsyncConnection.connect(self._near, autocommit=True) as connection:
            found = await connection.execute(question.encode())
            return await found.fetchall() if found.description else []

    async def close(self) -> None:
        for connection in self._open:
            await connection.close()


@pytest.fixture
async def lines(database_url: URL, proxy: Proxy) -> AsyncIterator[Lines]:
    lines = Lines(database_url, proxy.port)
    await lines.ask("drop table if exists written; create table written (number int)")
    yield lines
    await lines.close()
    await lines.ask("drop table written")


async def number(connection: Connection) -> int:
    """The answer to a question."""
    row = await (await connection.execute("select 1")).fetchone()
    assert row is not None
    return int(row[0])


async def port_of(connection: Connection) -> int:
    """The port from which the server sees a connection come."""
    row = await (await connection.execute("select inet_client_port()")).fetchone()
    assert row is not None
    return int(row[0])


async def test_some_connections_are_cut_and_others_are_not(proxy: Proxy, lines: Lines) -> None:
    first, second = await lines.connect(), await lines.connect()
    port = await port_of(first)
    assert proxy.cut(lambda link: link.port == port) == 1
    with pytest.raises(psycopg.OperationalError):
        await number(first)
    assert await number(second) == 1


async def test_client_hears_of_the_end_of_answers(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    assert proxy.half_close(Direction.ANSWERS) == 1
    with pytest.raises(psycopg.OperationalError, match="closed the connection"):
        await number(connection)


async def test_server_hears_of_the_end_of_requests(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    pid = connection.info.backend_pid
    assert proxy.half_close(Direction.REQUESTS) == 1

    async def is_gone() -> bool:
        return not await lines.ask(f"select 1 from pg_stat_activity where pid = {pid}")

    await eventually(is_gone)


async def test_answer_to_commit_is_lost_and_the_row_is_there(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    with proxy.trouble(Trouble(ANSWERS, swallow_from=COMMITTED)):
        assert await number(connection) == 1
        await connection.execute("begin")
        await connection.execute("insert into written values (7)")
        commit = asyncio.create_task(connection.execute("commit"))
        await eventually(lambda: proxy.lost_answers == 1)
        assert await lines.ask("select number from written") == [(7,)]
        assert not commit.done()
    with pytest.raises(psycopg.OperationalError):
        await commit
    assert await number(await lines.connect()) == 1


async def test_answer_to_rollback_is_not_lost(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    with proxy.trouble(Trouble(ANSWERS, swallow_from=COMMITTED)):
        await connection.execute("begin")
        await connection.execute("rollback")
    assert proxy.lost_answers == 0


async def test_request_goes_nowhere_and_the_next_connection_is_sound(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    with proxy.trouble(Trouble(REQUESTS, swallow=True)):
        write = asyncio.create_task(connection.execute("insert into written values (1)"))
        await eventually(lambda: proxy.swallowed > 0)
    with pytest.raises(psycopg.OperationalError):
        await write
    assert await lines.ask("select number from written") == []
    assert await number(await lines.connect()) == 1


async def test_pieces_wait_for_their_delay_and_for_their_size() -> None:
    assert Trouble(delay=lambda: 0.2).pause(1000) == 0.2
    assert Trouble(rate=500).pause(1000) == 2.0
    assert Trouble().pause(1000) == 0.0


async def test_late_line_is_late_while_it_lasts(proxy: Proxy, lines: Lines) -> None:
    asked = list[float]()

    def delay() -> float:
        asked.append(0.001)
        return 0.001

    connection = await lines.connect()
    with proxy.trouble(Trouble(ANSWERS, delay=delay)):
        assert await number(connection) == 1
    pieces = len(asked)
    assert await number(connection) == 1
    assert pieces == len(asked) > 0


async def test_black_hole_answers_nobody(proxy: Proxy, lines: Lines) -> None:
    connection = await lines.connect()
    proxy.way = Way.BLACK_HOLE
    asked = asyncio.create_task(number(connection))
    await eventually(lambda: proxy.swallowed > 0)
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        await asked


async def test_new_connections_go_to_the_new_target(proxy: Proxy, lines: Lines) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"elsewhere")
        writer.close()

    connection = await lines.connect()
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        proxy.target = other.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await reader.read() == b"elsewhere"
        writer.close()
    assert await number(connection) == 1


async def test_answer_that_waits_while_the_trouble_ends_is_not_lost_for_ever(lines: Lines, proxy: Proxy) -> None:
    connection = await lines.connect()
    waits = asyncio.Event()

    def wait() -> float:
        waits.set()
        return 0.3

    with proxy.trouble(Trouble(ANSWERS, swallow=True, delay=wait)):
        asking = asyncio.create_task(number(connection))
        await waits.wait()
    async with asyncio.timeout(10):
        assert await asking == 1
