"""Leaving a session with published messages and without a commit: one warning, and no false alarm."""

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Engine, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import OutboxWarning
from faststream_outbox.publish import publish, publish_sync
from tests.wakeup.test_after_commit import Ear

MESSAGE = Envelope(queue="orders", body=b"")
EAR: Any = Ear()


@pytest.fixture
def caught() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def ours(caught: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [each for each in caught if issubclass(each.category, OutboxWarning)]


def line_of(function: Callable[..., Any], words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if words in line)


async def leave_a_session(engine: AsyncEngine, sync_engine: Engine, table: Table) -> None:
    async with AsyncSession(engine) as session:  # opened here
        await publish(session, table, MESSAGE, wakeups=EAR)


async def leave_the_session_of_a_dependency(engine: AsyncEngine, sync_engine: Engine, table: Table) -> None:
    async def dependency() -> AsyncIterator[AsyncSession]:
        async with async_sessionmaker(engine)() as session:  # opened here
            yield session

    async with asynccontextmanager(dependency)() as session:
        await publish(session, table, MESSAGE, wakeups=EAR)


async def leave_a_sync_session(engine: AsyncEngine, sync_engine: Engine, table: Table) -> None:
    with Session(sync_engine) as session:  # opened here
        publish_sync(session, table, MESSAGE, wakeups=EAR)


@pytest.mark.parametrize("course", [leave_a_session, leave_the_session_of_a_dependency, leave_a_sync_session])
async def test_session_that_is_left_without_a_commit_is_warned_about_at_its_line(
    course: Any, driver_engine: AsyncEngine, sync_engine: Engine, table: Table, caught: list[warnings.WarningMessage]
) -> None:
    await course(driver_engine, sync_engine, table)
    (warning,) = ours(caught)
    assert "session.begin()" in str(warning.message)
    assert "commit()" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, line_of(course, "# opened here"))


async def test_notify_in_the_transaction_makes_no_difference(
    driver_engine: AsyncEngine, table: Table, caught: list[warnings.WarningMessage]
) -> None:
    ear: Any = Ear()
    ear.mode = "in_transaction"
    async with AsyncSession(driver_engine) as session:
        await publish(session, table, MESSAGE, wakeups=ear)
        await session.commit()
    assert (ours(caught), ear.reported) == ([], [])
    async with AsyncSession(driver_engine) as session:
        await publish(session, table, MESSAGE, wakeups=ear)
    assert len(ours(caught)) == 1


def test_sync_session_that_is_closed_without_a_commit(
    sync_engine: Engine, table: Table, caught: list[warnings.WarningMessage]
) -> None:
    session = Session(sync_engine)
    publish_sync(session, table, MESSAGE, wakeups=EAR)
    session.close()
    assert len(ours(caught)) == 1


class Oops(Exception):
    pass


async def raise_in_the_session(engine: AsyncEngine, table: Table) -> None:
    with suppress(Oops):
        async with AsyncSession(engine) as session:
            await publish(session, table, MESSAGE, wakeups=EAR)
            raise Oops


async def raise_in_the_transaction(engine: AsyncEngine, table: Table) -> None:
    with suppress(Oops):
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, MESSAGE, wakeups=EAR)
            raise Oops


async def raise_through_a_dependency(engine: AsyncEngine, table: Table) -> None:
    @asynccontextmanager
    async def dependency() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    with suppress(Oops):
        async with dependency() as session:
            await publish(session, table, MESSAGE, wakeups=EAR)
            raise Oops


async def be_cancelled(engine: AsyncEngine, table: Table) -> None:
    published = asyncio.Event()

    async def wait_in_the_session() -> None:
        async with AsyncSession(engine) as session:
            await publish(session, table, MESSAGE, wakeups=EAR)
            published.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait_in_the_session())
    await published.wait()
    task.cancel()
    await asyncio.wait([task])


async def fail_in_the_database(engine: AsyncEngine, table: Table) -> None:
    with suppress(Exception):
        async with AsyncSession(engine) as session:
            await publish(session, table, MESSAGE, wakeups=EAR)
            await session.execute(text("select 1 / 0"))


async def close_in_a_finally(engine: AsyncEngine, table: Table) -> None:
    session = AsyncSession(engine)
    with suppress(Oops):
        try:
            await publish(session, table, MESSAGE, wakeups=EAR)
            raise Oops
        finally:
            await session.close()


async def roll_back(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        await publish(session, table, MESSAGE, wakeups=EAR)
        await session.rollback()


async def roll_back_a_savepoint(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        with suppress(Oops):
            async with session.begin_nested():
                await publish(session, table, MESSAGE, wakeups=EAR)
                raise Oops


async def commit(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        await publish(session, table, MESSAGE, wakeups=EAR)
        await session.commit()


async def commit_with_a_savepoint(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session, session.begin(), session.begin_nested():
        await publish(session, table, MESSAGE, wakeups=EAR)


async def read_after_the_commit(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        await publish(session, table, MESSAGE, wakeups=EAR)
        await session.commit()
        await session.execute(text("select 1"))


async def publish_nothing(engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(engine) as session:
        await session.execute(text("select 1"))


@pytest.mark.parametrize(
    "course",
    [
        raise_in_the_session,
        raise_in_the_transaction,
        raise_through_a_dependency,
        be_cancelled,
        fail_in_the_database,
        close_in_a_finally,
        roll_back,
        roll_back_a_savepoint,
        commit,
        commit_with_a_savepoint,
        read_after_the_commit,
        publish_nothing,
    ],
    ids=lambda course: course.__name__,
)
async def test_no_false_alarm(
    driver_engine: AsyncEngine, table: Table, caught: list[warnings.WarningMessage], course: Any
) -> None:
    await course(driver_engine, table)
    assert [str(warning.message) for warning in ours(caught)] == []


@pytest.mark.parametrize("how", ["with", "finally"])
def test_no_false_alarm_of_a_sync_session(
    sync_engine: Engine, table: Table, caught: list[warnings.WarningMessage], how: str
) -> None:
    with suppress(Oops):
        if how == "with":
            with Session(sync_engine) as session:
                publish_sync(session, table, MESSAGE, wakeups=EAR)
                raise Oops
        session = Session(sync_engine)
        try:
            publish_sync(session, table, MESSAGE, wakeups=EAR)
            raise Oops
        finally:
            session.close()
    assert ours(caught) == []
