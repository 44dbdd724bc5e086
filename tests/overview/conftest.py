"""An overview of the tables of one test, on each of the drivers, and rows as any state has them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.overview import Overview

Fill = Callable[..., list[int]]


@pytest.fixture
async def overview(driver_engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Overview]:
    """Asked about queues, on each of the drivers in turn."""
    overview = Overview(driver_engine, table=table, dlq_table=dlq_table, timeout=30)
    yield overview
    await overview.close()


@pytest.fixture
def fill(sync_engine: Engine, table: Table) -> Fill:
    """Inserts rows of one kind; columns are SQL over the row's number `n`. The ids."""

    def fill(count: int = 1, queue: str = "orders", **columns: str) -> list[int]:
        given = {"queue": f"'{queue}'", "payload": "'body'"} | columns
        statement = (
            f"insert into outbox ({', '.join(given)}) select {', '.join(given.values())}"
            f" from generate_series(1, {count}) n returning id"
        )
        with sync_engine.begin() as connection:
            return list(connection.execute(text(statement)).scalars())

    return fill


@pytest.fixture
def bury(sync_engine: Engine, dlq_table: Table) -> Callable[..., list[int]]:
    """Inserts dead letters, of messages 1001 and on; the letters' ids."""

    def bury(count: int = 1, queue: str = "orders", **columns: str) -> list[int]:
        given: dict[str, Any] = {
            "original_id": "1000 + n",
            "message_id": "gen_random_uuid()",
            "queue": f"'{queue}'",
            "payload": "''",
            "created_at": "now()",
            "failure_reason": "'rejected'",
        }
        given |= columns
        statement = (
            f"insert into outbox_dlq ({', '.join(given)}) select {', '.join(given.values())}"
            f" from generate_series(1, {count}) n returning id"
        )
        with sync_engine.begin() as connection:
            return list(connection.execute(text(statement)).scalars())

    return bury


LEASED = {"acquired_token": "gen_random_uuid()", "acquired_at": "now()"}
EXPIRED = {"acquired_token": "gen_random_uuid()", "acquired_at": "now() - interval '1 day'"}
LATER = {"next_attempt_at": "now() + interval '1 hour'"}
APART = {"next_attempt_at": "'infinity'", "last_attempt_at": "now()"}
