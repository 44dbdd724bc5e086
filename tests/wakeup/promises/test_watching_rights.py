"""A role that may not read the id sequence: it is said once, with the remedy, and polling fills in."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.events.types import Handled, StatementFailed
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import POLLING, Rig


@pytest.fixture
async def restricted(engine: AsyncEngine, table: Table, database_url: URL) -> AsyncIterator[AsyncEngine]:
    role = f"restricted_{database_url.database}"
    async with engine.begin() as connection:
        await connection.execute(text(f"create role {role}"))
        await connection.execute(text(f"grant select, insert, update, delete on outbox to {role}"))
    restricted = create_async_engine(database_url, connect_args={"server_settings": {"role": role}})
    yield restricted
    await restricted.dispose()
    async with engine.begin() as connection:
        await connection.execute(text(f"drop owned by {role}"))
        await connection.execute(text(f"drop role {role}"))


async def test_it_is_said_with_the_grant_and_messages_are_handled(
    restricted: AsyncEngine, engine: AsyncEngine, table: Table, dlq_table: Table
) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    rig = Rig(restricted, table, dlq_table)
    await rig.work(handle, **POLLING)
    failed = await rig.witness.wait(StatementFailed)
    async with engine.begin() as connection:
        await connection.execute(text("insert into outbox (queue, payload) values ('orders', 'a')"))
    await rig.witness.wait(Handled)
    openings = rig.client._settle_connection.openings
    await rig.close()
    assert ([event.role for event in rig.witness.of(StatementFailed)], openings) == (["watch"], 1)
    assert "GRANT SELECT ON SEQUENCE outbox_id_seq" in str(failed.error)
