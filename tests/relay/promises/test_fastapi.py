"""A relay in a FastAPI application: it begins and ends with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from faststream.nats import NatsBroker

from faststream_outbox.fastapi import OutboxRouter
from tests.broker.asgi import running
from tests.broker.topics.stage import Stage
from tests.relay.playing import Played
from tests.relay.publishing import is_empty, publish
from tests.servers.nats_server import NatsServer


def make_router(stage: Stage) -> OutboxRouter:
    return OutboxRouter(stage.engine, outbox_table=stage.table, dlq_table=stage.dlq_table, logger=None)


async def test_it_runs_from_start_to_stop_of_the_application(stage: Stage) -> None:
    app, router, played = FastAPI(), make_router(stage), Played()
    relay = router.broker.relay("orders", to=played)
    app.include_router(router)
    async with running(app):
        await publish(stage, 1, 2, 3)
        await is_empty(stage)
        assert relay.is_running
    assert sorted(played.bodies) == [1, 2, 3]
    assert (relay.is_running, played.starts, played.stops) == (False, 1, 1)


async def test_it_sends_to_a_broker_of_the_same_application(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer
) -> None:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with nats:
            await nats.start()
            yield

    app, router = FastAPI(lifespan=lifespan), make_router(stage)
    router.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    app.include_router(router)
    async with running(app):
        await publish(stage, 1, 2, 3)
        await is_empty(stage)
    assert sorted(body for body, _ in await nats_server.stored("shop")) == [b"1", b"2", b"3"]
