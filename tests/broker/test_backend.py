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


async def seen_by_a_new_task(config: OutboxBrokerConfig) -> tuple[Any, Any]:
    async def look() -> tuple[Any, Any]:
        return config.backend, config.producer

    return await asyncio.create_task(look())


async def test_task_and_its_children_see_the_replacement(config: OutboxBrokerConfig, other: MemoryBackend) -> None:
    producer: Any = object()
    with replaced(config, other, producer):
        assert (config.backend, config.client, config.producer) == (other, other.client, producer)
        assert await seen_by_a_new_task(config) == (other, producer)


async def test_other_tasks_go_on_with_the_brokers_own(config: OutboxBrokerConfig, other: MemoryBackend) -> None:
    own = config.own_backend, config.producer
    may_look = asyncio.Event()

    async def look() -> tuple[Any, Any]:
        await may_look.wait()
        return config.backend, config.producer

    before = asyncio.create_task(look())
    await asyncio.sleep(0)
    with replaced(config, other, object()):  # type: ignore[arg-type]
        may_look.set()
        assert await before == own


async def test_replacement_ends(config: OutboxBrokerConfig, other: MemoryBackend) -> None:
    own = config.own_backend, config.producer
    with replaced(config, other, object()):  # type: ignore[arg-type]
        pass
    assert (config.backend, config.producer) == own


async def test_replacement_is_of_one_broker(config: OutboxBrokerConfig, other: MemoryBackend, table: Table) -> None:
    neighbour = OutboxBroker(outbox_table=table, dlq_table=None, logger=None).config.broker_config
    with replaced(config, other, object()), pytest.raises(IncorrectState, match="has no engine"):  # type: ignore[arg-type]
        _ = neighbour.backend
