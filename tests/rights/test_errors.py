"""A right that is missing is told by name, with the page that lists them all, and without the message."""

from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import Envelope
from faststream_outbox._internal.connections.rights import MESSAGE_COLUMNS
from faststream_outbox.errors import DuplicateMessage, MissingRight
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.publish import cancel_timer, publish
from tests.publish.ways import KINDS, WAYS
from tests.rights.grants import rights
from tests.rights.stage import SCHEMA, Stage

ROLE = "outbox_producer"
SECRET = "hunter2"
MESSAGE = Envelope(queue="orders", body=SECRET.encode())


async def refusal(stage: Stage, way: str = "AsyncSession asyncpg") -> str:
    with stage.login(ROLE) as address:
        async with WAYS[way](address, stage.table) as opened:
            await opened.begin()
            with pytest.raises(MissingRight) as failure:
                await opened.publish(MESSAGE)
    text = str(failure.value)
    assert "docs/security.md" in text
    assert SECRET not in text + str(failure.value.__cause__)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("way", KINDS)
async def test_missing_insert_is_told_with_the_columns(stage: Stage, way: str) -> None:
    with stage.without(f"REVOKE INSERT (headers) ON outbox FROM {ROLE}"):
        text = await refusal(stage, way)
    assert text.startswith("permission denied for table outbox: the role needs INSERT (queue, payload, headers, ")


async def test_missing_right_on_the_sequence_is_told(stage: Stage) -> None:
    with stage.without(f"REVOKE USAGE ON SEQUENCE outbox_id_seq FROM {ROLE}"):
        assert "GRANT USAGE ON SEQUENCE outbox_id_seq TO" in await refusal(stage)


async def test_missing_right_on_the_schema_is_told(stage: Stage) -> None:
    with stage.without(f"REVOKE USAGE ON SCHEMA {SCHEMA} FROM {ROLE}"):
        text = await refusal(stage)
    stage.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}")
    assert f"GRANT USAGE ON SCHEMA {SCHEMA} TO" in text


async def test_policy_is_told_from_a_missing_grant(stage: Stage) -> None:
    stage.execute("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
    try:
        assert 'a policy of "outbox" does not let this role write such a row' in await refusal(stage)
    finally:
        stage.execute("ALTER TABLE outbox DISABLE ROW LEVEL SECURITY")


def test_what_is_told_is_what_the_page_grants() -> None:
    printed = [right.column for right in rights(ROLE) if right.privilege == "INSERT"]
    assert printed == [*MESSAGE_COLUMNS.split(", "), "timer_id"]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_cancelling_without_the_right_names_it(stage: Stage, driver: str) -> None:
    async with stage.acting(ROLE, driver) as engine, AsyncSession(engine) as session:
        with pytest.raises(MissingRight, match="needs DELETE"):
            await cancel_timer(session, stage.table, queue="orders", timer_id="t")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_refused_message_is_not_in_the_error(stage: Stage, driver: str) -> None:
    stage.execute("ALTER TABLE outbox ADD CONSTRAINT strict CHECK (queue <> 'orders')")
    try:
        async with stage.acting(ROLE, driver) as engine, AsyncSession(engine) as session:
            with pytest.raises(IntegrityError) as failure:
                await publish(session, stage.table, MESSAGE)
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
