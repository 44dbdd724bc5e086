"""A log for one test, on asyncpg or on each driver in turn."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.log.rig import LogRig


@pytest.fixture
async def rig(engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """A log whose tables are there for this test, on asyncpg."""
    async with LogRig.made(engine) as rig:
        yield rig


@pytest.fixture
async def driver_rig(driver_engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """A log whose tables are there for this test, on each of the drivers in turn."""
    async with LogRig.made(driver_engine) as rig:
        yield rig
