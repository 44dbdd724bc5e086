"""An overview of the tables of one test, and rows as any state has them."""

from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.overview import Overview

Fill = Callable[..., list[int]]
LETTER = {
    "original_id": "1000 + n",
    "message_id": "gen_random_uuid()",
    "payload": "''",
    "created_at": "now()",
    "failure_reason": "'rejected'",
}


@pytest.fixture
async def overview(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Overview]:
    """Asked about queues."""
    overview = Overview(engine, table=table, dlq_table=dlq_table, timeout=30)
    yield overview
    await overview.close()


@pytest.fixture
async def overview_by(driver_engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Overview]:
    """The same by each of the drivers in turn, for what they might send or read in ways of their own."""
    overview = Overview(driver_engine, table=table, dlq_table=dlq_table, timeout=30)
    yield overview
    await overview.close()


def filling(engine: Engine, table: Table, usual: dict[str, str]) -> Fill:
    """Inserts rows of one kind; columns are SQL over the row's number `n`. The ids."""

    def fill(count: int = 1, queue: str = "orders", **columns: str) -> list[int]:
        given = {"queue": f"'{queue}'"} | usual | columns
        statement = (
            f"insert into {table.name} ({', '.join(given)}) select {', '.join(given.values())}"
            f" from generate_series(1, {count}) n returning id"
        )
        with engine.begin() as connection:
            return list(connection.execute(text(statement)).scalars())

    return fill


@pytest.fixture
def fill(sync_engine: Engine, table: Table) -> Fill:
    """Inserts messages."""
    return filling(sync_engine, table, {"payload": "'body'"})


@pytest.fixture
def bury(sync_engine: Engine, dlq_table: Table) -> Fill:
    """Inserts dead letters, of messages 1001 and on."""
    return filling(sync_engine, dlq_table, LETTER)


LEASED = {"acquired_token": "gen_random_uuid()", "acquired_at": "now()"}
EXPIRED = {"acquired_token": "gen_random_uuid()", "acquired_at": "now() - interval '1 day'"}
LATER = {"next_attempt_at": "now() + interval '1 hour'"}
APART = {"next_attempt_at": "'infinity'", "last_attempt_at": "now()"}
