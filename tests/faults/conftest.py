"""A scene of a queue or of a log in the database of this worker, and children that do not outlive their test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.faults.business import Business
from tests.faults.commit_trial import Trial
from tests.faults.log_business import LogBusiness
from tests.faults.log_scene import LogScene
from tests.faults.processes import ConsumerProcess, LogProcess, LogTroupe, Troupe, WorkerProcess, troupe
from tests.faults.proxy import Proxy, proxy_to
from tests.faults.scene import Scene
from tests.queue.conftest import driver_rig, rig
from tests.relay.conftest import effects, log_tables, relays, stage

__all__ = ["driver_rig", "effects", "log_tables", "relays", "rig", "stage"]

LEASE_SECONDS = 2.0
SEED = 20_240_229


@pytest.fixture
def seed() -> int:
    print(f"seed {SEED}")
    return SEED


@pytest.fixture
def record(database_url: URL) -> str:
    """The database in which workers keep what they handled."""
    return database_url.set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def scene(record: str) -> Iterator[Scene]:
    """The outbox in the same database as the record."""
    scene = Scene(record, record, LEASE_SECONDS)
    scene.set_up()
    yield scene
    scene.tear_down()


@pytest.fixture
async def proxy(database_url: URL) -> AsyncIterator[Proxy]:
    """The way to the server of this worker."""
    async with proxy_to(database_url.port or 5432) as proxy:
        yield proxy


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far_engine(request: pytest.FixtureRequest, database_url: URL, proxy: Proxy) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections go through the proxy, on each of the drivers in turn."""
    url = database_url.set(drivername=f"postgresql+{request.param}", host="127.0.0.1", port=proxy.port)
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def far(engine: AsyncEngine, far_engine: AsyncEngine, proxy: Proxy) -> AsyncIterator[Trial]:
    """Transactional handlers behind the proxy, with their tables."""
    trial = Trial(engine, far_engine, proxy)
    await trial.set_up()
    yield trial
    await far_engine.dispose()
    await trial.tear_down()


@pytest.fixture
async def business(scene: Scene, seed: int) -> AsyncIterator[Business]:
    business = Business(scene, seed)
    yield business
    await business.close()


@pytest.fixture
async def children() -> AsyncIterator[Troupe]:
    async with troupe(WorkerProcess) as children:
        yield children


@pytest.fixture
async def consumers() -> AsyncIterator[Troupe[ConsumerProcess]]:
    async with troupe(ConsumerProcess) as children:
        yield children


@pytest.fixture
def log_scene(record: str) -> Iterator[LogScene]:
    """The log in the same database as the record."""
    scene = LogScene(record, record)
    scene.set_up()
    yield scene
    scene.tear_down()


@pytest.fixture
async def log_business(log_scene: LogScene, seed: int) -> AsyncIterator[LogBusiness]:
    business = LogBusiness(log_scene, seed)
    yield business
    await business.close()


@pytest.fixture
async def members() -> AsyncIterator[LogTroupe]:
    async with troupe(LogProcess) as children:
        yield children
