"""Another backend in the place of the broker's own: for everybody, or for one task and the tasks that it starts."""

import asyncio
from typing import Any

import pytest
from faststream.exceptions import IncorrectState
from sqlalchemy import Table

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig, replaced
from faststream_outbox._internal.memory.client import FakeOutboxClient
from faststream_outbox._internal.testing.broker import MemoryBackend


@pytest.fixture
def config(table: Table) -> OutboxBrokerConfig:
    broker = OutboxBroker(outbox_table=table, dlq_table=None, logger=None)
    config: OutboxBrokerConfig = broker.config.broker_config
    config.own_backend = MemoryBackend(FakeOutboxClient(table))
    return config


@pytest.fixture
def other(table: Table) -> MemoryBackend:
    return MemoryBackend(FakeOutboxClient(table))


async def look(config: OutboxBrokerConfig, when: asyncio.Event) -> tuple[Any, Any]:
    await when.wait()
    return config.backend, config.producer


async def test_task_and_its_children_see_the_replacement_until_it_ends_and_others_never(
    config: OutboxBrokerConfig, other: MemoryBackend
) -> None:
    own = config.own_backend, config.producer
    may_look = asyncio.Event()
    producer: Any = object()
    before = asyncio.create_task(look(config, may_look))
    await asyncio.sleep(0)
    with replaced(config, other, producer):
        may_look.set()
        assert (config.backend, config.client, config.producer) == (other, other.client, producer)
        assert await asyncio.create_task(look(config, may_look)) == (other, producer)
        assert await before == own
    assert (config.backend, config.producer) == own


async def test_replacement_is_of_one_broker(config: OutboxBrokerConfig, other: MemoryBackend, table: Table) -> None:
    neighbour = OutboxBroker(outbox_table=table, dlq_table=None, logger=None).config.broker_config
    with replaced(config, other, object()), pytest.raises(IncorrectState, match="has no engine"):  # type: ignore[arg-type]
        _ = neighbour.backend
