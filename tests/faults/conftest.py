"""A scene of a queue or of a log in the database of this worker, and children that do not outlive their test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import URL

from tests.faults.business import Business
from tests.faults.log_business import LogBusiness
from tests.faults.log_processes import LogProcess, LogTroupe
from tests.faults.log_scene import LogScene
from tests.faults.processes import ConsumerProcess, Troupe, WorkerProcess, troupe
from tests.faults.scene import Scene
from tests.relay.conftest import effects, log_tables, relays, stage

__all__ = ["effects", "log_tables", "relays", "stage"]

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
    with LogScene.standing(record, record) as scene:
        yield scene


@pytest.fixture
async def log_business(log_scene: LogScene, seed: int) -> AsyncIterator[LogBusiness]:
    business = LogBusiness(log_scene, seed)
    yield business
    await business.close()


@pytest.fixture
async def members() -> AsyncIterator[LogTroupe]:
    async with troupe(LogProcess) as children:
        yield children
