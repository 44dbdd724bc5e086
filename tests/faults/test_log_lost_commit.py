"""The connection of a handler's transaction is lost at the worst moments.

If COMMIT succeeded and its answer was lost, the reader cannot know and must find out: effects happen once all the
same, and no cursor moves backwards. If the connection died before it, no message is to blame, however often.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.log.transactional import TransactionalSubscriber
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_scene import LogScene, log_tables
from tests.waiting import eventually

pytestmark = pytest.mark.faults

GROUP = "billing"
MESSAGES = 5
MOST_ATTEMPTS = 2
DEATHS = 2 * MOST_ATTEMPTS + 1
"""Enough to park a message, if only every other one counted."""
ONE_BY_ONE = Manner(rollbacks=0.0, held=0.0)


@pytest.fixture
async def outbox(driver_engine: AsyncEngine, log_scene: LogScene) -> AsyncIterator[Outbox]:
    retry = ConstantRetry(delay_seconds=0.05, max_attempts=MOST_ATTEMPTS)
    async with Outbox(driver_engine, tables=log_tables(), retry_strategy=retry) as outbox:
        yield outbox


async def with_effect(message: OutboxMessage, session: AsyncSession) -> None:
    insert = text("insert into effects (name, version, pid) values (:name, :version, 0)")
    await session.execute(insert, message.payload)


@asynccontextmanager
async def reading(outbox: Outbox, handle: TransactionalSubscriber) -> AsyncIterator[None]:
    """A reader for the length of the block."""
    stop = asyncio.Event()
    running = asyncio.create_task(outbox.run(handle, GROUP, stop_event=stop, transactional=True))
    yield
    stop.set()
    await running


async def end_connection(scene: LogScene, session: AsyncSession) -> None:
    """End a session's connection on the server, and wait until a driver that reads by itself has seen it."""
    ((pid,),) = await session.execute(text("select pg_backend_pid()"))
    driver = (await (await session.connection()).get_raw_connection()).driver_connection
    scene.ask(f"select pg_terminate_backend({pid}, 5000)")
    if isinstance(driver, asyncpg.Connection):
        await eventually(driver.is_closed)


class LostAnswer(ConnectionError):
    """What a driver raises when the server does not answer any more."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("the answer to COMMIT was lost")
        self.sqlstate = sqlstate


def lose_the_answer(outbox: Outbox, sqlstate: str | None) -> None:
    """Let the first transaction of a handler commit, and say that the connection is lost."""
    open_session = outbox.client.open_session
    lost = False

    def opened() -> AsyncSession:
        session = open_session()

        @event.listens_for(session.sync_session, "after_transaction_end")
        def after(_: Session, transaction: object) -> None:
            nonlocal lost
            is_outermost = getattr(transaction, "parent", None) is None
            if is_outermost and not lost:
                lost = True
                raise LostAnswer(sqlstate)

        return session

    outbox.client.open_session = opened  # type: ignore[method-assign]


@pytest.mark.parametrize("sqlstate", [None, "08006"], ids=["unknown_error", "connection_error"])
async def test_effects_happen_once_although_the_answer_to_their_commit_was_lost(
    outbox: Outbox, log_scene: LogScene, log_business: LogBusiness, sqlstate: str | None
) -> None:
    await log_business.publish(ONE_BY_ONE, transactions=MESSAGES)
    lose_the_answer(outbox, sqlstate)
    async with reading(outbox, with_effect):
        await log_scene.is_finished(GROUP)
        # A message behind them is the proof that the reader has found out and gone on.
        await log_business.publish(ONE_BY_ONE, transactions=1, name=1)
        await log_scene.is_finished(GROUP)
    assert not log_scene.account(GROUP, log_scene.effects()).wrongs()
    assert log_scene.ask("select * from reversals") == []


@pytest.mark.parametrize("moment", ["handler", "commit"])
async def test_no_message_is_parked_because_its_connection_died(
    outbox: Outbox, log_scene: LogScene, log_business: LogBusiness, moment: str
) -> None:
    await log_business.publish(ONE_BY_ONE, transactions=1)
    runs = 0

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        nonlocal runs
        runs += 1
        if moment == "commit":
            await with_effect(message, session)
        if runs <= DEATHS:
            await end_connection(log_scene, session)
        if moment == "handler":
            await with_effect(message, session)

    async with reading(outbox, handle):
        await log_scene.is_finished(GROUP)
    account = log_scene.account(GROUP, log_scene.effects())
    assert (account.done, account.parked, account.wrongs()) == (1, 0, {})
