"""A call that raises has published nothing, also if the caller goes on and commits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, MetaData
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.log import DuplicateMessage, Outbox, OutboxMessage, SequenceBehind, make_log_tables
from tests.log.opened import delivered
from tests.log.rig import LogRig
from tests.log.ways import LogWay
from tests.publish.ways import plain
from tests.waiting import eventually


def message(payload: object, event_id: object = None) -> OutboxMessage:
    return OutboxMessage("k", payload, {} if event_id is None else {"event_id": event_id})


@pytest.fixture(params=["plain", "partitioned"])
async def either(request: pytest.FixtureRequest, engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """A log of each kind."""
    tables = make_log_tables(MetaData(), partitioned=request.param == "partitioned")
    async with LogRig.made(engine, tables=tables) as rig:
        if tables.is_partitioned:
            await rig.outbox.partitions(1000).ensure()
        yield rig


async def test_call_with_a_duplicate_publishes_nothing(way: LogWay, rig: LogRig) -> None:
    await rig.put("k", 1, event_id="same")
    await way.publish(message("before"))
    with pytest.raises(DuplicateMessage):
        await way.publish(message(2), message(3, "same"), message(4, "other"))
    await way.publish(message("after", "other"))
    await way.commit()
    assert await delivered(rig.outbox, "g") == [1, "before", "after"]


async def test_call_that_waited_for_the_publisher_of_its_id_publishes_nothing(either: LogRig) -> None:
    first, second = await either.writer(), await either.writer()
    await either.outbox.publish(first.connection, message(1, "same"))
    publishing = asyncio.create_task(either.outbox.publish(second.connection, message(2), message(3, "same")))
    await eventually(lambda: either.blocked_by(first.connection))
    await first.commit()
    with pytest.raises(DuplicateMessage):
        await publishing
    await second.commit()
    assert await delivered(either.outbox, "g") == [1]


async def test_duplicate_that_is_left_out_leaves_the_transaction_usable(either: LogRig) -> None:
    await either.put("k", 1, event_id="same")
    writer = await either.writer()
    again = message(2, "same")
    assert (await either.outbox.publish(writer.connection, again, on_duplicate="ignore")).positions == ()
    await writer.publish("k", 3)
    await writer.commit()
    assert await delivered(either.outbox, "g") == [1, 3]


@pytest.mark.parametrize("on_duplicate", ["error", "ignore"])
async def test_call_that_draws_numbers_of_other_messages_publishes_nothing(either: LogRig, on_duplicate: Any) -> None:
    """A copy without its sequence: a message would be gone without a word, also where duplicates are ignored."""
    await either.put("k", 1, 2)
    await either.ask("select setval('{sequence_name}', 1, false)")
    writer = await either.writer()
    # The primary key of a plain log is that of all its messages, and refuses by itself.
    error = SequenceBehind if either.outbox.tables.is_partitioned else IntegrityError
    with pytest.raises(error):
        await either.outbox.publish(writer.connection, message(3), message(4), on_duplicate=on_duplicate)
    await writer.rollback()
    assert await either.committed() == [1, 2]


async def test_call_that_draws_numbers_of_deleted_messages_is_delivered(either: LogRig) -> None:
    """They lie behind every cursor, until somebody looks."""
    await either.put("k", 1, 2)
    await delivered(either.outbox, "g")
    await either.ask("delete from {log}")
    await either.ask("select setval('{sequence_name}', 1, false)")
    await either.put("k", 3)
    assert await delivered(either.outbox, "g") == [3]


TAKEN, FRESH = UUID(int=1), UUID(int=2)


async def publish_without_a_transaction(kind: str, url: URL, outbox: Outbox) -> None:
    batch = [message(2), message(3, str(TAKEN)), message(4, str(FRESH))]
    match kind:
        case "asyncpg":
            raw = await asyncpg.connect(plain(url))
            try:
                await outbox.publish(raw, *batch)
            finally:
                await raw.close()
        case "psycopg":
            async with await psycopg.AsyncConnection.connect(plain(url), autocommit=True) as connection:
                await outbox.publish(connection, *batch)
        case "psycopg sync":
            with psycopg.connect(plain(url), autocommit=True) as connection:
                outbox.publish_sync(connection, *batch)
        case _:
            autocommit = outbox.engine.execution_options(isolation_level="AUTOCOMMIT")
            async with autocommit.connect() as connection:
                await outbox.publish(connection, *batch)


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "psycopg sync", "sqlalchemy"])
async def test_call_with_a_duplicate_is_never_seen_also_where_each_statement_commits(
    rig: LogRig, database_url: URL, kind: str
) -> None:
    await rig.put("k", 1, event_id=str(TAKEN))
    await rig.ask(
        "create or replace function refuse() returns trigger language plpgsql as $$ begin raise 'seen before'; end $$"
    )
    await rig.ask("create trigger refuse before delete on {log} for each statement execute function refuse()")
    with pytest.raises(DuplicateMessage, match=str(TAKEN)) as raised:
        await publish_without_a_transaction(kind, database_url, rig.outbox)
    assert str(FRESH) not in str(raised.value)
    await rig.ask("drop function refuse cascade")
    assert await delivered(rig.outbox, "g") == [1]
