"""Rows of a partitioned log where no part was made for them."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import OutboxMessage
from faststream_outbox.testing.postgres import PostgresServer
from tests.doctor.clinic import Clinic
from tests.tables import all_existing


@pytest.fixture
async def parts(server: PostgresServer, engine: AsyncEngine, builder: Engine) -> AsyncIterator[Clinic]:
    made = Clinic(server, engine, partitioned=True)
    with all_existing(list(made.metadata.sorted_tables), builder):
        log = made.log()
        await log.setup()
        yield made
        await log.cleanup()


async def _publish(clinic: Clinic) -> None:
    log = clinic.log()
    async with clinic.engine.begin() as connection:
        await log.publish(connection, OutboxMessage("orders", 1))
    await log.cleanup()


async def test_rows_in_the_rest_are_seen_and_parts_can_be_made(parts: Clinic) -> None:
    assert await parts.found("partitions") == []
    await _publish(parts)
    parts.execute("analyze outbox_log")
    finding = await parts.heals("partitions")
    assert finding.facts["partition"] == "public.outbox_log_rest"
    await _publish(parts)
    parts.execute("analyze outbox_log")
    assert await parts.found("partitions") == []


async def test_default_partition_is_seen_and_can_be_emptied(parts: Clinic) -> None:
    parts.execute(
        "create table mine partition of outbox_log default",
        "insert into outbox_log (position, uri, slot, body, metadata, created_at, transaction_id)"
        " values (-1, 'orders', 0, '', '{}', now(), 1)",
    )
    finding = await parts.one("partitions", "DEFAULT")
    assert "retention" in finding.cost
    # What lies before the first part has to have a place.
    parts.execute("delete from mine")
    await parts.heals("partitions", "DEFAULT")
