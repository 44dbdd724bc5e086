"""Each test runs on PostgreSQL and in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from tests.broker.conformance.ways import LOOPS, MEMORY, POSTGRES, Seen, Way


def _setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param != POSTGRES:
        return {"name": request.param}
    get = request.getfixturevalue
    return {"name": POSTGRES, "url": get("database_url"), "tables": (get("table"), get("dlq_table"))}


@pytest.fixture(params=[POSTGRES, MEMORY, LOOPS])
def setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    return _setting(request)


@pytest.fixture(params=[POSTGRES, LOOPS])
def live_setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    return _setting(request)


async def _made(setting: dict[str, Any]) -> AsyncIterator[Way]:
    if setting["name"] != POSTGRES:
        yield Way(setting["name"])
        return
    engine = create_async_engine(setting["url"])
    yield Way(POSTGRES, engine, setting["tables"])
    await engine.dispose()


@pytest.fixture
async def way(setting: dict[str, Any]) -> AsyncIterator[Way]:
    """Where brokers run: each of the three."""
    async for made in _made(setting):
        yield made


@pytest.fixture
async def live(live_setting: dict[str, Any]) -> AsyncIterator[Way]:
    """Where the engine's loops run: on PostgreSQL and in memory."""
    async for made in _made(live_setting):
        yield made


@pytest.fixture(params=[POSTGRES])
def real_setting(request: pytest.FixtureRequest) -> dict[str, Any]:
    return _setting(request)


@pytest.fixture
async def real(real_setting: dict[str, Any]) -> AsyncIterator[Way]:
    """On PostgreSQL only."""
    async for made in _made(real_setting):
        yield made


@pytest.fixture
async def memory() -> Way:
    """In memory, at once."""
    return Way(MEMORY)


@pytest.fixture
async def seen() -> Seen:
    return Seen()
