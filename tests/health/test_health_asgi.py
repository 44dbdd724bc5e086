"""`/live`, `/ready` and `/health` for FastStream and for FastAPI."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from faststream.asgi import AsgiFastStream
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.fastapi import health_router
from faststream_outbox.health import health_routes
from tests.broker.asgi import running
from tests.waiting import eventually

pytestmark = pytest.mark.examines


def faststream_app(broker: OutboxBroker) -> Any:
    return AsgiFastStream(broker, asgi_routes=health_routes(broker, timeout=30), logger=None)


def fastapi_app(broker: OutboxBroker) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await broker.start()
        yield
        await broker.stop()

    app = FastAPI(lifespan=lifespan)
    app.include_router(health_router(broker, timeout=30))
    return app


@pytest.mark.parametrize("make", [faststream_app, fastapi_app])
async def test_all_is_well(broker: OutboxBroker, make: Callable[[OutboxBroker], Any]) -> None:
    async with running(make(broker)) as client:
        for path in ("/live", "/ready", "/health"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.json()["ready"] is True
        head = await client.head("/live")
        assert (head.status_code, head.content) == (200, b"")
        assert (await client.post("/live")).status_code == 405


@pytest.mark.parametrize("make", [faststream_app, fastapi_app])
async def test_missing_tables_are_not_ready_and_live(engine: AsyncEngine, make: Callable[[OutboxBroker], Any]) -> None:
    table = make_outbox_table(MetaData(), "not_there")
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)
    async with running(make(broker)) as client:
        assert (await client.get("/live")).status_code == 200
        ready = await client.get("/ready")
        said = {"ready": False, "unready": ["not_there: the table does not exist"]}
        assert (ready.status_code, ready.json()) == (503, said)
        assert (await client.get("/health")).status_code == 503
    await broker.stop()


async def test_a_loop_that_ended_is_not_live_and_still_ready(broker: OutboxBroker) -> None:
    async with running(faststream_app(broker)) as client:
        # FastStream answers before its brokers have started.
        await eventually(lambda: broker.running)
        task: Any = broker.client.services[0]._task
        task.cancel()
        await asyncio.wait([task])
        live = await client.get("/live")
        assert (live.status_code, live.json()["stuck"]) == (503, ["outbox claimer is not running"])
        assert (await client.get("/ready")).status_code == 200
        assert (await client.get("/health")).status_code == 503


def test_paths_have_the_prefix_given(broker: OutboxBroker) -> None:
    paths = [path for path, _ in health_routes(broker, prefix="/internal")]
    assert paths == ["/internal/live", "/internal/ready", "/internal/health"]


@pytest.mark.parametrize("make", [faststream_app, fastapi_app])
async def test_fields_of_any_kind_change_no_answer(broker: OutboxBroker, make: Callable[[OutboxBroker], Any]) -> None:
    async with running(make(broker)) as client:
        for query in ("", "timeout=-1", "timeout=nan", "%00", "%ff=%ff", "a" * 5000, "x&x=1&=&"):
            assert (await client.get(f"/live?{query}")).status_code == 200
        for path in ("/live/x", "/live%00", "/%ff", "/health/../live%2f", "/LIVE"):
            assert (await client.get(path)).status_code in (200, 307, 404)
