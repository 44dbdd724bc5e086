"""An outbox with queues and topics, and processes that relay it."""

from collections.abc import AsyncIterator

import pytest

from tests.broker.conftest import effects, log_tables, stage
from tests.faults.processes import RelayProcess, Troupe, troupe

__all__ = ["effects", "log_tables", "stage"]


@pytest.fixture
async def relays() -> AsyncIterator[Troupe[RelayProcess]]:
    async with troupe(RelayProcess) as children:
        yield children
