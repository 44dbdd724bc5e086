"""LISTEN at `listen_dsn` is as safe as the engine: its TLS, its passwords, its hooks, whoever stands at the address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Table, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.events.types import ListenerLost, ListenerReady
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from tests.publish.ways import plain
from tests.sql.tls import Certificates, Front, front, make_certificates
from tests.waiting import eventually

LIMIT = 30.0
DRIVERS = ("asyncpg", "psycopg")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture
async def pooler(database_url: URL, certificates: Certificates) -> AsyncIterator[Front]:
    """Where the engine goes."""
    async with front(database_url, certificates) as there:
        yield there


@pytest.fixture
async def direct(database_url: URL, certificates: Certificates) -> AsyncIterator[Front]:
    """Where LISTEN goes."""
    async with front(database_url, certificates) as there:
        yield there


@pytest.fixture(params=DRIVERS)
async def safe(request: pytest.FixtureRequest, pooler: Front, certificates: Certificates) -> AsyncIterator[AsyncEngine]:
    """An engine that accepts our authority's servers alone."""
    url = pooler.url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, connect_args=certificates.options(request.param))
    yield engine
    await engine.dispose()


@asynccontextmanager
async def working(engine: AsyncEngine, table: Table, dsn: str) -> AsyncIterator["asyncio.Queue[Any]"]:
    """A worker, and what is told of its listener."""
    reported: asyncio.Queue[Any] = asyncio.Queue()

    async def handle(claim: Claim) -> Outcome:
        return DONE

    client = OutboxClient(engine, table, listen_dsn=dsn)
    client.events.subscribe(reported.put_nowait, ListenerReady, ListenerLost)
    worker = Worker(engine, table, "orders", handle, client=client)
    await worker.start()
    try:
        yield reported
    finally:
        await worker.stop()


async def first(reported: "asyncio.Queue[Any]") -> Any:
    return await asyncio.wait_for(reported.get(), LIMIT)


async def test_every_connection_of_ours_is_encrypted(
    safe: AsyncEngine, pooler: Front, direct: Front, table: Table
) -> None:
    async with working(safe, table, plain(direct.url)) as reported:
        assert type(await first(reported)) is ListenerReady
        # claim, scan, settle; and LISTEN
        await eventually(lambda: pooler.encrypted == 3 and direct.encrypted == 1)
    assert (pooler.refused, direct.refused) == (0, 0)


async def test_a_server_without_tls_is_refused(safe: AsyncEngine, database_url: URL, table: Table) -> None:
    async with working(safe, table, plain(database_url)) as reported:
        lost = await first(reported)
        assert type(lost) is ListenerLost
        assert "SSL" in str(lost.error)


async def test_another_authoritys_server_is_refused(
    safe: AsyncEngine, database_url: URL, table: Table, tmp_path: Path
) -> None:
    async with front(database_url, make_certificates(tmp_path / "theirs")) as stranger:
        async with working(safe, table, plain(stranger.url)) as reported:
            lost = await first(reported)
        assert type(lost) is ListenerLost
        assert "certificate verify failed" in str(lost.error)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("form", ["?sslmode={mode}&sslrootcert={authority}", "?ssl={mode}&sslrootcert={authority}"])
async def test_an_address_says_its_own_in_the_words_of_any_driver(
    driver: str, form: str, direct: Front, database_url: URL, table: Table, certificates: Certificates, tmp_path: Path
) -> None:
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"))
    theirs = make_certificates(tmp_path / "theirs")
    for authority, expected in ((certificates, ListenerReady), (theirs, ListenerLost)):
        query = form.format(mode="verify-full", authority=authority.authority)
        async with working(engine, table, plain(direct.url) + query) as reported:
            assert type(await first(reported)) is expected
    await engine.dispose()
    assert direct.refused == 0


async def test_hooks_of_the_application_see_the_address_whenever_they_came(
    safe: AsyncEngine, direct: Front, table: Table
) -> None:
    ports: list[int] = []

    def give_password(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
        port = options["port"]
        ports.append(int(port[0] if isinstance(port, list) else port))
        options["password"] = "fetched"

    event.listen(safe.sync_engine, "do_connect", give_password)
    client = OutboxClient(safe, table, listen_dsn=plain(direct.url))
    event.listen(safe.sync_engine, "do_connect", lambda *_: ports.append(0))
    await client.listener._connection.open()
    await client.listener._connection.close()
    assert ports[-2:] == [direct.url.port, 0]
    ports.clear()
    async with safe.connect():
        assert ports == [safe.url.port, 0]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_address_beside_a_creator_must_say_whether_it_wants_tls(
    driver: str, direct: Front, database_url: URL, table: Table, certificates: Certificates
) -> None:
    async def connect() -> Any:
        if driver == "asyncpg":
            return await asyncpg.connect(plain(database_url))
        return await psycopg.AsyncConnection.connect(plain(database_url))

    engine = create_async_engine(f"postgresql+{driver}://nowhere.invalid/", async_creator=connect)
    async with working(engine, table, plain(direct.url)) as reported:
        lost = await first(reported)
        assert type(lost) is ListenerLost
        assert "sslmode" in str(lost.error)
    query = f"?sslmode=verify-full&sslrootcert={certificates.authority}"
    async with working(engine, table, plain(direct.url) + query) as reported:
        assert type(await first(reported)) is ListenerReady
    await engine.dispose()
    assert (direct.encrypted, direct.refused) == (1, 0)
