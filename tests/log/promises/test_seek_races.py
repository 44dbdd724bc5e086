"""Seeks that meet retention or a settle: nothing protected is deleted, and nothing is read out of its order."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin import partitions as retention_lock
from faststream_outbox._internal.log.admin import retention
from faststream_outbox._internal.log.blocked import DEFERRED, RETRY, Deferral, as_columns
from faststream_outbox._internal.log.sharing.leases import moves
from faststream_outbox._internal.sql.statements import Statement, statements
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import Cursor, slot_of
from tests.log.opened import delivered
from tests.log.rig import LogRig, Writer
from tests.waiting import eventually

NOW = timedelta(0)


def statement(rig: LogRig, file: str, name: str) -> Statement:
    return statements(file, rig.outbox.client.names)[name]


async def send(writer: Writer, sent: Statement, **values: Any) -> list[Any]:
    """Run one of the library's statements in an open transaction."""
    result = await writer.connection.exec_driver_sql(sent.dollar, sent.arguments(values))
    return [tuple(row) for row in result] if result.returns_rows else []


async def read_messages(rig: LogRig, count: int) -> None:
    """So many messages, each in a tick of its own, all of them read by the group."""
    await rig.put_apart("k", *range(1, count + 1))
    await delivered(rig.outbox, "g")


async def test_seek_back_between_two_slices_keeps_what_it_protects(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SLICE", 10)
    await read_messages(rig, 30)
    slices: list[str] = []
    fetch_each = DedicatedConnection.fetch_each

    async def each(connection: DedicatedConnection, steps: Any, **options: Any) -> Any:
        rows = await fetch_each(connection, steps, **options)
        slices.append(steps[-1][0].name)
        if slices == ["delete_slice"]:
            await rig.seek(Cursor(15, 15))
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch_each", each)
    await rig.outbox.clean(older_than=NOW)
    assert await delivered(rig.outbox, "g") == list(range(16, 31))


async def test_cleaning_waits_for_a_seek_that_is_not_committed_yet(rig: LogRig) -> None:
    await read_messages(rig, 5)
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.seek(session, Cursor(2, 2), "g")
        cleaning = asyncio.create_task(rig.outbox.clean(older_than=NOW))
        await asyncio.wait([cleaning], timeout=0.2)
        await session.commit()
    await cleaning
    assert await delivered(rig.outbox, "g") == [3, 4, 5]


async def test_cleaning_that_waits_too_long_says_for_what(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_lock, "LONGEST_WAIT", 0.1)
    await read_messages(rig, 5)
    async with AsyncSession(rig.engine) as session:
        await rig.outbox.seek(session, "earliest", "g")
        with pytest.raises(TimeoutError, match="seek"):
            await rig.outbox.clean(older_than=NOW)
        await session.rollback()


async def test_seek_to_a_message_that_is_just_being_deleted_is_refused(rig: LogRig) -> None:
    """It waits for the slice, and then says that the message is not there any more."""
    event_id = uuid4()
    await rig.put("k", "old", event_id=str(event_id))
    await read_messages(rig, 3)
    cleaner = await rig.writer()
    await send(cleaner, statement(rig, "retention", "lock_retention"))
    values = {"group_seconds": 3600.0, "age": 0.0, "limit": 100, "after": -1, "tick": 2, "position": 2, "floor": 3}
    assert await send(cleaner, statement(rig, "retention", "delete_slice"), **values)
    seeking = asyncio.create_task(rig.seek(event_id))
    await eventually(lambda: rig.blocked_by(cleaner.connection))
    await cleaner.commit()
    with pytest.raises(InvalidOption, match="not any more"):
        await seeking


async def test_cleaning_does_not_stand_in_front_of_what_reads(rig: LogRig) -> None:
    """Slices have a connection of their own."""
    await read_messages(rig, 3)
    connection = rig.outbox.client.connection
    async with connection._lock:
        async with asyncio.timeout(30):
            await rig.outbox.clean(older_than=NOW)
    assert set(await rig.committed()) <= {3}


async def settling(rig: LogRig, *states: tuple[int, str]) -> Writer:
    """A settle that has moved the cursor behind three messages and set some aside, and is not committed."""
    await rig.put("k", 1, 2, 3)
    await rig.sequence()
    deferrals = [Deferral(position, 1, slot_of("k"), "k", state) for position, state in states]
    reader = await rig.reader()
    await reader.join()
    made_at = (await rig.ask("select at from {ticks} where tick = 1"))[0]["at"]
    spans = [span.at(Cursor(1, 3), made_at) for span in reader.member.leases.spans.values()]
    writer = await rig.writer()
    values = {**reader.member.leases.values, **moves(spans, again=True), **as_columns(deferrals), "release": False}
    assert await send(writer, statement(rig, "group", "advance"), **values)
    return writer


async def test_seek_during_a_settle_leaves_nothing_of_it_waiting(rig: LogRig) -> None:
    settle = await settling(rig, (1, RETRY), (3, DEFERRED))
    seeking = asyncio.create_task(rig.seek("earliest"))
    await eventually(lambda: rig.blocked_by(settle.connection))
    await settle.commit()
    await seeking
    assert await rig.deferrals() == []
    assert await delivered(rig.outbox, "g") == [1, 2, 3]


async def test_seek_under_repeatable_read_fails_rather_than_leave_something_waiting(rig: LogRig) -> None:
    settle = await settling(rig, (3, DEFERRED))
    repeatable = rig.engine.execution_options(isolation_level="REPEATABLE READ")
    async with AsyncSession(repeatable) as session:
        await session.execute(text("select 1 from pg_class limit 1"))
        await settle.commit()
        with pytest.raises(DBAPIError, match="serialize"):
            await rig.outbox.seek(session, "earliest", "g")
        await session.rollback()
    await rig.seek("earliest")
    assert await delivered(rig.outbox, "g") == [1, 2, 3]
