"""A scene in the database of this worker, and children that do not outlive their test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import URL

from tests.faults.business import Business
from tests.faults.processes import Troupe, WorkerProcess, troupe
from tests.faults.scene import Scene

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
