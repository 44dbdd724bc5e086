"""What a hint cannot know is found all the same: old transactions, unseen priorities, clocks that differ.

The worker polls once a minute, so what it handles before was not found by polling.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.publish import rows
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.publish import publish
from faststream_outbox.queue import Claim
from tests.publish.ways import plain
from tests.wakeup.conftest import asleep

LIMIT = 25.0


async def handled(queue: "asyncio.Queue[Claim]") -> bytes:
    return (await asyncio.wait_for(queue.get(), LIMIT)).payload


@pytest.mark.slow
async def test_a_transaction_that_notified_and_stayed_open_is_found_at_its_commit(
    engine: AsyncEngine, table: Table
) -> None:
    async with asleep(engine, table, notify="in_transaction", watch=False) as (client, messages):
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, Envelope(queue="orders", body=b"old"), wakeups=client.wakeups)
            # As if it had been published a while ago.
            await session.execute(text("update outbox set next_attempt_at = now() - interval '10 s'"))
        assert await handled(messages) == b"old"


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_priority_that_nobody_has_seen_is_found_by_watching(
    engine: AsyncEngine, table: Table, database_url: URL, key: str | None
) -> None:
    async with asleep(engine, table, listen=False) as (_, messages):
        with psycopg.connect(plain(database_url), autocommit=True) as stranger:
            stranger.execute("insert into outbox (queue, payload, priority, key) values ('orders', 'a', 7, %s)", [key])
        assert await handled(messages) == b"a"


@pytest.mark.slow
async def test_what_appears_before_watching_has_begun_is_found_when_it_begins(
    engine: AsyncEngine, table: Table, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_begin = asyncio.Event()
    fetch = DedicatedConnection.fetch

    async def held_up(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name == "last_id":
            await may_begin.wait()
        return await fetch(connection, statement, values)

    monkeypatch.setattr(DedicatedConnection, "fetch", held_up)
    async with asleep(engine, table) as (_, messages):
        with psycopg.connect(plain(database_url), autocommit=True) as stranger:
            stranger.execute("insert into outbox (queue, payload) values ('orders', 'a')")
        may_begin.set()
        assert await handled(messages) == b"a"


class Clock(datetime):
    """A publisher's clock."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + cls.ahead


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0.3, -20.0, 20.0], ids=lambda ahead: f"{ahead:+} s")
@pytest.mark.parametrize("due_in", [0.0, 0.1])
async def test_a_time_on_a_clock_that_differs_is_kept_on_the_servers_clock(
    engine: AsyncEngine, table: Table, monkeypatch: pytest.MonkeyPatch, ahead: float, due_in: float
) -> None:
    """By its own clock the publisher tells that the message is due; by the server's it is earlier or later."""
    monkeypatch.setattr(rows, "datetime", Clock)
    monkeypatch.setattr(Clock, "ahead", timedelta(seconds=ahead))
    async with asleep(engine, table, watch=False, listen=False) as (client, messages):
        # A clock that is far ahead tells of a message that is not due for long.
        offset = due_in if ahead > 1 else ahead + due_in
        at = datetime.now(UTC) + timedelta(seconds=offset)
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, Envelope(queue="orders", body=b"a", activate_at=at), wakeups=client.wakeups)
        assert await handled(messages) == b"a"
