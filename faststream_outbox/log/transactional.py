"""Handlers that take the transaction: their writes, the cursor and the fence commit together, or not at all.

A batch is one transaction with a savepoint for each message; a message that fails is rolled back to its
savepoint and set aside in the same commit. Where the whole does not commit, its messages are tried one by
one, so that only the guilty one fails. Effects in this database happen exactly once. Used by `Outbox`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import ConnectionUnusable, LeaseLost, OutboxError
from faststream_outbox.log.care import carefully
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.handling import Handling, is_transient
from faststream_outbox.log.message import OutboxMessage
from faststream_outbox.log.spans import Cursor
from faststream_outbox.outcomes.failure import ENDING
from faststream_outbox.outcomes.outcome import DONE, Retry
from faststream_outbox.service import unbroken
from faststream_outbox.sql.isolation import BEGINNINGS, CONFLICT, is_conflict
from faststream_outbox.sql.through import end

TransactionalSubscriber = Callable[[OutboxMessage, AsyncSession], Awaitable[object]]


async def handle_in_transaction(handling: Handling, subscriber: TransactionalSubscriber) -> None:
    """Handle a batch in one transaction, or its messages in one each."""
    deliveries = handling.batch.deliveries
    if any(delivery.slot in handling.reader.holding.care for delivery in deliveries):
        for delivery in deliveries:
            if handling.reader.is_stopping or not await _with_care(handling, delivery, subscriber):
                return
        await handling.finish(is_whole=True, release=False)
        return
    try:
        await _together(handling, deliveries, subscriber)
    except (LeaseLost, ConnectionUnusable, *ENDING):
        raise
    except BaseException as error:
        if is_transient(error):
            if is_conflict(error):
                handling.reader.client.isolation.doubt()
            raise
        for delivery in deliveries:
            if handling.reader.is_stopping:
                return
            await _alone(handling, delivery, subscriber)
    if not handling.reader.is_stopping:
        await handling.finish(is_whole=True, release=False)


async def _with_care(handling: Handling, delivery: Delivery, subscriber: TransactionalSubscriber) -> bool:
    async def run() -> bool:
        await _alone(handling, delivery, subscriber)
        return True

    if delivery.slot in handling.reader.holding.care:
        return await carefully(handling, delivery, run)
    return await run()


async def _alone(handling: Handling, delivery: Delivery, subscriber: TransactionalSubscriber) -> None:
    try:
        await _together(handling, [delivery], subscriber)
    except (LeaseLost, ConnectionUnusable, *ENDING):
        raise
    except BaseException as error:
        if is_transient(error):
            raise
        handling.begin_again()
        handling.end(delivery, Retry(error=error))
        handling.reached = delivery.cursor
        await handling.write()


async def _together(handling: Handling, deliveries: Sequence[Delivery], subscriber: TransactionalSubscriber) -> None:
    rest, tries = deliveries, 1
    while rest and not handling.reader.is_stopping:
        try:
            rest = await _in_one(handling, rest, subscriber)
        except _InTheWay:
            tries += 1
            if tries > BEGINNINGS:
                raise


class _InTheWay(OutboxError):
    """Spans were renewed just when a transaction was about to hold them."""

    sqlstate = CONFLICT


async def _in_one(
    handling: Handling, deliveries: Sequence[Delivery], subscriber: TransactionalSubscriber
) -> Sequence[Delivery]:
    """Handle messages in one transaction, and give those that could not be part of it."""
    reader, batch = handling.reader, handling.batch
    handling.begin_again()
    reached: Cursor | None = None
    # Before the spans are held, if they have to be: then they could not be cut any more.
    may_run = handling.may_run(deliveries[0])
    async with _transaction(handling) as session:
        is_strict = await _held(handling, session)
        allow = _refuse_commit(session)
        for number, delivery in enumerate(deliveries):
            if reader.is_stopping:
                break
            if number:
                halted = set(batch.halts)
                may_run = handling.may_run(delivery)
                if is_strict and batch.halts.keys() - halted:
                    del batch.halts[delivery.slot]
                    break
            if may_run:
                await _one(handling, delivery, subscriber, session)
            reached = delivery.cursor
        if reached is None:
            return deliveries
        allow()
        await reader.settle_within(session, batch, reached, batch.done)
        end(session)
        handling.reached = await unbroken(_commit(handling, session, reached))
    return [delivery for delivery in deliveries if delivery.cursor > reached]


@asynccontextmanager
async def _transaction(handling: Handling) -> AsyncGenerator[AsyncSession, None]:
    """A transaction for handlers, whose session is refused afterwards."""
    async with handling.reader.client.open_session() as session:
        try:
            # A handler that ends the transaction itself is refused by this one.
            async with session.begin():
                yield session
        finally:
            end(session)


class OwnCommit(OutboxError, RuntimeError):
    """A transactional handler tried to commit the session that it was given."""


def _refuse_commit(session: AsyncSession) -> Callable[[], None]:
    """Let nobody commit before the returned function is called: the neighbours' effects would go without the cursor."""
    sync = session.sync_session

    def refuse(_: object) -> None:
        if sync.get_nested_transaction() is None:
            msg = "A transactional handler must not commit its session: that happens when it has returned."
            raise OwnCommit(msg)

    event.listen(sync, "before_commit", refuse)
    return lambda: event.remove(sync, "before_commit", refuse)


async def _held(handling: Handling, session: AsyncSession) -> bool:
    try:
        await session.connection()
        return await handling.lock_within(session)
    except LeaseLost:
        raise
    except Exception as error:
        if is_conflict(error):
            raise _InTheWay from error
        # Before the first handler: no message is to blame for it.
        msg = f"No connection for the transaction of group {handling.reader.group.name!r}: {error!r}"
        raise ConnectionUnusable(msg) from error


async def _commit(handling: Handling, session: AsyncSession, reached: Cursor) -> Cursor:
    await handling.reader.commit(session)
    await handling.committed(reached)
    return reached


async def _one(
    handling: Handling, delivery: Delivery, subscriber: TransactionalSubscriber, session: AsyncSession
) -> None:
    try:
        async with session.begin_nested():
            await subscriber(delivery.message, session)
    except ENDING:
        raise
    except BaseException as error:
        if not session.is_active or isinstance(error, OwnCommit) or is_transient(error):
            # The transaction itself is gone or in conflict: nothing of it can be kept.
            raise
        handling.end(delivery, Retry(error=error))
    else:
        handling.end(delivery, DONE)
