"""A right that is missing is told by name, with the page that lists them all, and without the message."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import Envelope
from faststream_outbox._internal.connections.rights import MESSAGE_COLUMNS
from faststream_outbox.errors import DuplicateMessage, MissingRight
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.publish import cancel_timer, publish, publish_sync
from tests.rights.grants import rights
from tests.rights.stage import SCHEMA, Stage

ROLE = "outbox_producer"
SECRET = "hunter2"
MESSAGE = Envelope(queue="orders", body=SECRET.encode())


async def by_session(stage: Stage, driver: str) -> None:
    engine = stage.engine(ROLE, driver)
    try:
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, stage.table, MESSAGE)
    finally:
        await engine.dispose()


async def by_asyncpg(stage: Stage, url: URL) -> None:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(dsn, server_settings={"role": ROLE})
    try:
        async with connection.transaction():
            await publish(connection, stage.table, MESSAGE)
    finally:
        await connection.close()


async def by_psycopg(stage: Stage, url: URL) -> None:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(dsn, options=f"-c role={ROLE}") as connection:
        await publish(connection, stage.table, MESSAGE)


async def by_sync_session(stage: Stage, url: URL) -> None:
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args={"options": f"-c role={ROLE}"})
    try:
        with Session(engine) as session, session.begin():
            publish_sync(session, stage.table, MESSAGE)
    finally:
        engine.dispose()


WAYS: dict[str, Callable[[Stage, URL], Awaitable[None]]] = {
    "session on asyncpg": lambda stage, _: by_session(stage, "asyncpg"),
    "session on psycopg": lambda stage, _: by_session(stage, "psycopg"),
    "asyncpg": by_asyncpg,
    "psycopg": by_psycopg,
    "sync session": by_sync_session,
}


async def refusal(stage: Stage, url: URL, way: str = "session on asyncpg") -> str:
    with pytest.raises(MissingRight) as failure:
        await WAYS[way](stage, url)
    text = str(failure.value)
    assert "docs/security.md" in text
    assert SECRET not in text + str(failure.value.__cause__)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("way", WAYS)
async def test_missing_insert_is_told_with_the_columns(stage: Stage, database_url: URL, way: str) -> None:
    with stage.without(f"REVOKE INSERT (headers) ON outbox FROM {ROLE}"):
        text = await refusal(stage, database_url, way)
    assert text.startswith("permission denied for table outbox: the role needs INSERT (queue, payload, headers, ")


async def test_missing_right_on_the_sequence_is_told(stage: Stage, database_url: URL) -> None:
    with stage.without(f"REVOKE USAGE ON SEQUENCE outbox_id_seq FROM {ROLE}"):
        assert "GRANT USAGE ON SEQUENCE outbox_id_seq TO" in await refusal(stage, database_url)


async def test_missing_right_on_the_schema_is_told(stage: Stage, database_url: URL) -> None:
    with stage.without(f"REVOKE USAGE ON SCHEMA {SCHEMA} FROM {ROLE}"):
        text = await refusal(stage, database_url)
    stage.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}")
    assert f"GRANT USAGE ON SCHEMA {SCHEMA} TO" in text


async def test_policy_is_told_from_a_missing_grant(stage: Stage, database_url: URL) -> None:
    stage.execute("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
    try:
        assert 'a policy of "outbox" does not let this role write such a row' in await refusal(stage, database_url)
    finally:
        stage.execute("ALTER TABLE outbox DISABLE ROW LEVEL SECURITY")


def test_what_is_told_is_what_the_page_grants() -> None:
    printed = [right.column for right in rights(ROLE) if right.privilege == "INSERT"]
    assert printed == [*MESSAGE_COLUMNS.split(", "), "timer_id"]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_cancelling_without_the_right_names_it(stage: Stage, driver: str) -> None:
    engine = stage.engine(ROLE, driver)
    async with AsyncSession(engine) as session:
        with pytest.raises(MissingRight, match="needs DELETE"):
            await cancel_timer(session, stage.table, queue="orders", timer_id="t")
    await engine.dispose()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_refused_message_is_not_in_the_error(stage: Stage, driver: str) -> None:
    stage.execute("ALTER TABLE outbox ADD CONSTRAINT strict CHECK (queue <> 'orders')")
    try:
        with pytest.raises(IntegrityError) as failure:
            await by_session(stage, driver)
    finally:
        stage.execute("ALTER TABLE outbox DROP CONSTRAINT strict")
    assert SECRET not in str(failure.value)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_duplicate_is_told_to_a_publisher_that_may_not_delete(stage: Stage, driver: str) -> None:
    engine = stage.engine("outbox_publisher", driver)
    outbox = Outbox(engine, tables=stage.log_tables)

    async def put(*names: str) -> None:
        messages: list[Any] = [OutboxMessage("shop", 1, {"event_id": name}) for name in names]
        async with AsyncSession(engine) as session, session.begin():
            await outbox.publish(session, *messages)

    one, two = "6f0c2f1e-0000-4000-8000-000000000001", "6f0c2f1e-0000-4000-8000-000000000002"
    await put(one)
    with pytest.raises(DuplicateMessage) as alone:
        await put(one)
    with pytest.raises(DuplicateMessage, match="Roll the transaction back"):
        await put(two, one)
    await outbox.cleanup()
    await engine.dispose()
    assert "Roll the transaction back" not in str(alone.value)
    assert stage.ask("SELECT count(*) FROM outbox_log") == [(1,)]
