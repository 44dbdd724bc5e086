"""A rig whose client a recorder of each kind listens to."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.metrics.readings import Both, Reading
from tests.queue.conftest import renewed_often
from tests.queue.rig import Rig

__all__ = ["renewed_often"]


@pytest.fixture
def reading() -> Reading:
    return Both()


@pytest.fixture
async def rig(engine: AsyncEngine, table: Table, dlq_table: Table, reading: Reading) -> AsyncIterator[Rig]:
    rig = Rig(engine, table, dlq_table)
    reading.listen(rig.client.events)
    yield rig
    await rig.close()
