"""Each test runs on PostgreSQL and in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker
from tests.broker.conformance.differences import LOOPS, MEMORY, POSTGRES, Difference
from tests.broker.conformance.ways import Seen, Way

IMPATIENCE_SECONDS = 0.1
"""How long is waited for what does not happen in a way that differs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (difference := _difference(item)) is not None:
            item.add_marker(pytest.mark.xfail(reason=difference.said))


def _difference(item: pytest.Item) -> Difference | None:
    """The difference that the test shows in its way."""
    call: Any = getattr(item, "callspec", None)
    for mark in item.iter_markers("differs"):
        difference: Difference = mark.args[0]
        if call is not None and not {*difference.ways}.isdisjoint(map(str, call.params.values())):
            return difference
    return None


def _setting_of(*names: str) -> Any:
    @pytest.fixture(params=names)
    def setting(request: pytest.FixtureRequest) -> dict[str, Any]:
        if request.param != POSTGRES:
            return {"name": request.param}
        get = request.getfixturevalue
        made = {"name": POSTGRES, "url": get("database_url"), "tables": (get("table"), get("dlq_table"))}
        return made | ({"log_tables": get("log_tables")} if request.node.get_closest_marker("topics") else {})

    return setting


setting, live_setting, real_setting = (
    _setting_of(POSTGRES, MEMORY, LOOPS),
    _setting_of(POSTGRES, LOOPS),
    _setting_of(POSTGRES),
)


async def _made(setting: dict[str, Any]) -> AsyncIterator[Way]:
    if setting["name"] != POSTGRES:
        yield Way(setting["name"])
        return
    engine = create_async_engine(setting["url"])
    way = Way(POSTGRES, engine, setting["tables"], setting.get("log_tables"))
    yield way
    await way.close()
    await engine.dispose()


@pytest.fixture
async def way(setting: dict[str, Any], seen: Seen, request: pytest.FixtureRequest) -> AsyncIterator[Way]:
    """Where brokers run: each of the three."""
    async for made in _made(setting):
        if _difference(request.node) is not None:
            made.patience = seen.patience = IMPATIENCE_SECONDS
        yield made


@pytest.fixture
async def live(live_setting: dict[str, Any]) -> AsyncIterator[Way]:
    """Where the engine's loops run: on PostgreSQL and in memory."""
    async for made in _made(live_setting):
        yield made


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
def broker(way: Way) -> OutboxBroker:
    """One of the way, not started."""
    return way.broker()


@pytest.fixture
async def seen() -> Seen:
    return Seen()
