"""A PostgreSQL for each worker of pytest-xdist, a database in it, fixtures on top.

Tests of two workers share no server, because everybody's snapshots, locks and transaction numbers are
everybody's business there: a transaction that one test holds open keeps dead rows on the pages of another.

`OUTBOX_TEST_DSN` replaces the private server by one of yours (databases `outbox_test_*` are dropped
and created there); `OUTBOX_TEST_PG=16` picks the version of the private one, and `TMPDIR` its place. Brokers are in
`tests/servers`; a part that is not installed is skipped, or a failure with `OUTBOX_TEST_REQUIRE=1`.
"""

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import hypothesis
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, Engine, MetaData, Table, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.health import readiness
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox.testing.postgres import PostgresServer
from tests.servers.fixtures import amqp, kafka_address, nats, nats_server, rabbit_server, redis_server, sqs_url
from tests.servers.programs import pgbouncer, postgres
from tests.skips import pytest_terminal_summary
from tests.tables import STAYS, at_once, existing

__all__ = ["amqp", "kafka_address", "nats", "nats_server", "rabbit_server", "redis_server", "sqs_url"]
__all__ += ["pytest_terminal_summary"]

# fsync off loses nothing when only PostgreSQL crashes: what it wrote is in the kernel's hands.
# Autovacuum would come at any time, hold a snapshot, and teach the planner about a test's tables.
SETTINGS = {"fsync": "off", "max_connections": "200", "autovacuum": "off"}

# Servers live in memory, where there is enough of it: files of tables are made and removed all the time, and on a disk
# that takes a fifth of everything.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 8 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

# asyncpg asks for TLS first, and where there is none it connects a second time: a connection costs twice as much then.
if "OUTBOX_TEST_DSN" not in os.environ:
    os.environ.setdefault("PGSSLMODE", "disable")

# What is collected stays until the end: looking for garbage in it takes half as long again as collecting.
gc.disable()

# The same examples in every run, however slow the machine is; what explores is among the soak tests.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("pgbouncer"):
        pgbouncer()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that nobody waits for it at the end."""
    long = {item.path for item in items if item.get_closest_marker("faults") or "examples" in item.path.parts}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def tables_are_taken_as_they_are(request: pytest.FixtureRequest) -> Iterator[None]:
    """A broker examines its tables when it starts: once in a process, but here that would be thousands of times.

    `@pytest.mark.examines` is for tests of it. Not by the fixture `monkeypatch`, which would then outlive all others.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("examines") is None:
            patch.setattr(readiness, "examined", _nothing_differs)
        yield


@pytest.fixture(autouse=True)
def nobody_is_left(request: pytest.FixtureRequest) -> None:
    """End what earlier tests left in a transaction when their event loop ended.

    Such a session holds a snapshot, and vacuum, DETACH and CREATE INDEX CONCURRENTLY wait for all of these.
    """
    if "database_url" in request.fixturenames:
        with at_once(request.getfixturevalue("builder")) as connection:
            connection.exec_driver_sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                "and pid <> pg_backend_pid() and backend_type = 'client backend' and state <> 'idle' "
                f"and application_name <> '{STAYS}'"
            )


async def _nothing_differs(*_: object) -> Sequence[Difference]:
    return ()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server of this worker. Never crash this one: see `private_server`."""
    if "OUTBOX_TEST_DSN" in os.environ:
        pytest.skip("needs the programs of a private server, and OUTBOX_TEST_DSN names another one")
    version = postgres(int(os.environ.get("OUTBOX_TEST_PG", "18")))
    with PostgresServer.start(version=version, settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def database_url(request: pytest.FixtureRequest) -> Iterator[URL]:
    """The database of this worker, fresh."""
    given = os.environ.get("OUTBOX_TEST_DSN")
    maintenance = make_url(given or request.getfixturevalue("server").dsn())
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"outbox_test_{worker}"
    dsn = maintenance.set(drivername="postgresql").render_as_string(hide_password=False)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield maintenance.set(drivername="postgresql+asyncpg", database=name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(drop)


@pytest.fixture(scope="session")
def builder(database_url: URL) -> Iterator[Engine]:
    """Makes and drops tables for tests, on a connection that stays open: a new one costs more than a table."""
    url = database_url.set(drivername="postgresql+psycopg")
    engine = create_engine(url, pool_size=1, pool_pre_ping=True)
    yield engine
    engine.dispose()


@pytest.fixture
async def engine(database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An asynchronous engine on asyncpg."""
    engine = create_async_engine(database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def psycopg_engine(database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An asynchronous engine on psycopg 3."""
    engine = create_async_engine(database_url.set(drivername="postgresql+psycopg"))
    yield engine
    await engine.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def driver_engine(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An asynchronous engine on each of the drivers in turn."""
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"))
    yield engine
    await engine.dispose()


@pytest.fixture
def sync_engine(database_url: URL) -> Iterator[Engine]:
    """A synchronous engine on psycopg 3."""
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture
def metadata() -> MetaData:
    return MetaData()


@pytest.fixture
def table(metadata: MetaData, builder: Engine) -> Iterator[Table]:
    """The queue's table, there for one test."""
    from faststream_outbox.schema import make_outbox_table

    with existing(make_outbox_table(metadata), builder) as table:
        yield table


@pytest.fixture
def dlq_table(metadata: MetaData, builder: Engine) -> Iterator[Table]:
    """The dead letters' table, there for one test."""
    from faststream_outbox.schema import make_dlq_table

    with existing(make_dlq_table(metadata), builder) as table:
        yield table


@pytest.fixture
def private_server() -> Iterator[PostgresServer]:
    """A server of the test's own, to crash and to restart."""
    version = postgres(int(os.environ.get("OUTBOX_TEST_PG", "18")))
    with PostgresServer.start(version=version, settings=SETTINGS) as server:
        yield server
