"""When hints leave: once for each commit, and never for what was not committed."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.wakeup import after_commit
from faststream_outbox._internal.wakeup.hint import Hint, Notice
from faststream_outbox.publish import publish, publish_sync
from tests.publish.ways import plain


class Ear:
    """Stands where `Wakeups` stands, and writes down what it is told."""

    mode = "after_commit"

    def __init__(self) -> None:
        self.reported: list[Hint] = []

    def tell(self, hint: Hint) -> None:
        self.reported.append(hint)

    def values(self, notice: Notice) -> dict[str, Any]:
        return {"channel": "unused", "payload": notice.payload, "names": [], "opening": "", "former_index": ""}

    @property
    def queues(self) -> list[str | None]:
        return [hint.queue for hint in self.reported]


@pytest.fixture
def ear() -> Any:
    return Ear()


@pytest.fixture
async def session(driver_engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(driver_engine) as session:
        yield session


def message(queue: str, **fields: Any) -> Envelope:
    return Envelope(queue=queue, body=b"", **fields)


async def test_commit_tells_what_was_published(session: AsyncSession, table: Table, ear: Any) -> None:
    given = message("a"), message("b", key="k", priority=4), message("a")
    *_, last_id = await publish(session, table, *given, wakeups=ear)
    assert last_id is not None
    assert ear.reported == []
    await session.commit()
    assert ear.reported == [
        Hint("a", count=2, priorities=frozenset((0,)), keyed=False, last_id=last_id),
        Hint("b", count=1, priorities=frozenset((4,)), keyless=False, last_id=last_id),
    ]


async def test_commit_tells_once(session: AsyncSession, table: Table, ear: Any) -> None:
    await publish(session, table, message("a"), wakeups=ear)
    await session.commit()
    await session.execute(text("select 1"))
    await session.commit()
    assert ear.queues == ["a"]


async def test_second_transaction_of_a_session_tells_again(session: AsyncSession, table: Table, ear: Any) -> None:
    for _ in range(3):
        async with session.begin():
            await publish(session, table, message("a"), wakeups=ear)
    assert ear.queues == ["a", "a", "a"]


async def test_rollback_tells_nothing_and_the_next_commit_only_its_own(
    session: AsyncSession, table: Table, ear: Any
) -> None:
    await publish(session, table, message("lost"), wakeups=ear)
    await session.rollback()
    await publish(session, table, message("kept"), wakeups=ear)
    await session.commit()
    assert ear.queues == ["kept"]


async def test_exception_in_a_transaction_tells_nothing(session: AsyncSession, table: Table, ear: Any) -> None:
    async def fail() -> None:
        async with session.begin():
            await publish(session, table, message("lost"), wakeups=ear)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with session.begin():
        await session.execute(text("select 1"))
    assert ear.reported == []


async def test_closed_session_tells_nothing_also_when_it_is_used_again(
    session: AsyncSession, table: Table, ear: Any
) -> None:
    await publish(session, table, message("lost"), wakeups=ear)
    await session.close()
    await session.execute(text("select 1"))
    await session.commit()
    assert ear.reported == []


async def test_failed_commit_tells_nothing(session: AsyncSession, table: Table, ear: Any) -> None:
    await session.execute(text("create temporary table once (id int unique deferrable initially deferred)"))
    await session.execute(text("insert into once values (1), (1)"))
    await publish(session, table, message("lost"), wakeups=ear)
    with pytest.raises(Exception, match="duplicate key"):
        await session.commit()
    await session.rollback()
    await session.execute(text("select 1"))
    await session.commit()
    assert ear.reported == []


async def test_released_savepoint_waits_for_the_commit(session: AsyncSession, table: Table, ear: Any) -> None:
    async with session.begin():
        async with session.begin_nested():
            async with session.begin_nested():
                await publish(session, table, message("inner"), wakeups=ear)
            await publish(session, table, message("outer"), wakeups=ear)
        assert ear.reported == []
    assert ear.queues == ["inner", "outer"]


async def test_rolled_back_savepoint_does_not_silence_what_was_published_before_it(
    session: AsyncSession, table: Table, ear: Any
) -> None:
    async with session.begin():
        await publish(session, table, message("before"), wakeups=ear)
        savepoint = await session.begin_nested()
        await savepoint.rollback()
        await publish(session, table, message("after"), wakeups=ear)
    assert ear.queues == ["before", "after"]


async def test_savepoint_rolled_back_by_sql_does_not_silence_what_comes_after(
    session: AsyncSession, table: Table, ear: Any
) -> None:
    async with session.begin():
        await session.execute(text("savepoint s"))
        await publish(session, table, message("a"), wakeups=ear)
        await session.execute(text("rollback to savepoint s"))
        await publish(session, table, message("a"), wakeups=ear)
    # the first is a hint too many, which does no harm
    assert ear.queues[-1:] == ["a"]


async def test_autocommit_tells_every_time(driver_engine: AsyncEngine, table: Table, ear: Any) -> None:
    autocommit = driver_engine.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.connect() as connection:
        for number in (1, 2, 3):
            await publish(connection, table, message("a"), wakeups=ear)
            assert len(ear.reported) == number
    async with AsyncSession(autocommit) as session:
        for number in (4, 5):
            await publish(session, table, message("a"), wakeups=ear)
            assert len(ear.reported) == number
        await session.commit()
    assert len(ear.reported) == 5


async def test_bare_connection_tells_nothing_because_nobody_sees_its_commit(
    engine: AsyncEngine, table: Table, ear: Any
) -> None:
    async with engine.begin() as connection:
        await publish(connection, table, message("a"), wakeups=ear)
    assert ear.reported == []


async def test_raw_connections_tell_at_once_outside_of_a_transaction_only(
    database_url: URL, table: Table, ear: Any
) -> None:
    connection = await asyncpg.connect(plain(database_url))
    async with connection.transaction():
        await publish(connection, table, message("unseen"), wakeups=ear)
    await publish(connection, table, message("asyncpg"), wakeups=ear)
    await connection.close()
    async with await psycopg.AsyncConnection.connect(plain(database_url)) as other:
        await publish(other, table, message("unseen"), wakeups=ear)
        await other.commit()
        await other.set_autocommit(True)
        await publish(other, table, message("psycopg"), wakeups=ear)
    assert ear.queues == ["asyncpg", "psycopg"]


def test_sync_session_tells_with_its_commit(sync_engine: Engine, table: Table, ear: Any) -> None:
    with Session(sync_engine) as session:
        publish_sync(session, table, message("lost"), wakeups=ear)
        session.rollback()
        with session.begin():
            publish_sync(session, table, message("kept"), wakeups=ear)
            assert ear.reported == []
    assert ear.queues == ["kept"]


async def test_taken_timer_is_not_told(session: AsyncSession, table: Table, ear: Any) -> None:
    for _ in range(2):
        async with session.begin():
            await publish(session, table, message("a", timer_id="t"), wakeups=ear)
    assert ear.queues == ["a"]


async def test_late_commit_asks_for_a_look_below_the_floor(
    session: AsyncSession, table: Table, ear: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(session, table, message("quick"), wakeups=ear)
    await session.commit()
    await publish(session, table, message("slow"), wakeups=ear)
    published = after_commit.monotonic()
    monkeypatch.setattr(after_commit, "monotonic", lambda: published + after_commit.LATE_SECONDS + 0.1)
    await session.commit()
    assert [(hint.queue, hint.scan) for hint in ear.reported] == [("quick", False), ("slow", True)]


async def test_two_sessions_do_not_tell_each_others_messages(engine: AsyncEngine, table: Table, ear: Any) -> None:
    async with AsyncSession(engine) as one, AsyncSession(engine) as other:
        await publish(one, table, message("one"), wakeups=ear)
        await publish(other, table, message("other"), wakeups=ear)
        await other.commit()
        assert ear.queues == ["other"]
        await one.commit()
    assert ear.queues == ["other", "one"]


async def test_a_hint_that_cannot_be_told_does_not_fail_the_commit(
    session: AsyncSession, table: Table, ear: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(hint: Hint) -> None:
        raise RuntimeError("the ear is broken")

    ear.tell = broken
    async with session.begin():
        await publish(session, table, message("a"), message("b"), wakeups=ear)
    assert caplog.text.count("A wake-up failed after a commit") == 2
