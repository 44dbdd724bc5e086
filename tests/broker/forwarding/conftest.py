"""An outbox, and a NATS server to forward to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from faststream.nats import NatsBroker

from tests.broker.forwarding.nats_server import NatsServer
from tests.broker.topics.conftest import log_tables, stage

__all__ = ["log_tables", "stage"]


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path)
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def nats(nats_server: NatsServer) -> AsyncIterator[NatsBroker]:
    nats = NatsBroker(nats_server.url, logger=None, reconnect_time_wait=0.1, max_reconnect_attempts=-1)  # type: ignore[arg-type]
    yield nats
    await nats.stop()
