"""Fixtures of all brokers, for whatever folder needs one; the root's `conftest` has them.

Clients are imported by the fixtures that need them: most tests need none. What is not installed is skipped, or a
failure with `OUTBOX_TEST_REQUIRE=1`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from faststream.nats import NatsBroker

    from tests.servers.nats_server import NatsServer
    from tests.servers.rabbit_server import RabbitServer
    from tests.servers.redis_server import RedisServer

__all__ = ["amqp", "kafka_address", "nats", "nats_server", "rabbit_server", "redis_server", "sqs_url"]


@pytest.fixture
async def nats_server(tmp_path: Path) -> "AsyncIterator[NatsServer]":
    from tests.servers.nats_server import NatsServer

    server = NatsServer(tmp_path)
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def nats(nats_server: "NatsServer") -> "AsyncIterator[NatsBroker]":
    """A broker that comes back as often as its server does."""
    from faststream.nats import NatsBroker

    nats = NatsBroker(nats_server.url, logger=None, reconnect_time_wait=0.1, max_reconnect_attempts=-1)  # type: ignore[arg-type]
    yield nats
    await nats.stop()


@pytest.fixture
async def redis_server(tmp_path: Path) -> "AsyncIterator[RedisServer]":
    from tests.servers.redis_server import RedisServer

    server = RedisServer(tmp_path)
    await server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RabbitServer]":
    """One for all tests of a worker: it takes seconds to start."""
    from tests.servers.rabbit_server import RabbitServer

    server = RabbitServer(tmp_path_factory.mktemp("rabbit"))
    asyncio.run(server.start())
    yield server
    server.kill()


@pytest.fixture(scope="session")
def amqp(request: pytest.FixtureRequest) -> str:
    """The address of RabbitMQ: yours, if `OUTBOX_TEST_AMQP` has it."""
    given = os.environ.get("OUTBOX_TEST_AMQP")
    return given or str(request.getfixturevalue("rabbit_server").url)


@pytest.fixture
def kafka_address() -> Iterator[str]:
    from tests.servers.kafka_cluster import kafka_cluster

    with kafka_cluster() as address:
        yield address


@pytest.fixture(scope="module")
def sqs_url() -> Iterator[str]:
    from tests.servers.sqs_server import sqs_server

    with sqs_server() as url:
        yield url
