"""A log for each test, with the default names."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import Outbox
from tests.log.opened import opened


@pytest.fixture
async def outbox(engine: AsyncEngine) -> AsyncIterator[Outbox]:
    async with opened(engine) as outbox:
        yield outbox
