"""Handlers that take the transaction: their writes, the cursor and the fence commit together, or not at all.

A batch is one transaction with a savepoint for each message; a message that fails is rolled back to its
savepoint and deferred in the same commit. Where the whole does not commit, its messages are tried one by
one, so that only the guilty one fails. Effects in this database happen exactly once. Used by `Outbox`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.caller import end
from faststream_outbox._internal.connections.cause import CONFLICT, is_conflict, is_transient
from faststream_outbox._internal.connections.transactions import BEGINNINGS
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.outcome import DONE, Retry
from faststream_outbox._internal.service import unbroken
from faststream_outbox.errors import ConnectionUnusable, LeaseLost, OutboxError, OwnCommit

TransactionalSubscriber = Callable[[OutboxMessage, AsyncSession], Awaitable[object]]


async def handle_in_transaction(batch_run: BatchRun, subscriber: TransactionalSubscriber) -> None:
    """Handle a batch in one transaction, or its messages in one each."""
    deliveries = batch_run.batch.deliveries
    if any(batch_run.member.needs_note(delivery) for delivery in deliveries):
        for delivery in deliveries:
            if batch_run.member.is_stopping or not await _guarded(batch_run, delivery, subscriber):
                return
        await batch_run.finish(is_whole=True, release=False)
        return
    try:
        is_whole = await _together(batch_run, deliveries, subscriber)
    except (LeaseLost, ConnectionUnusable, *ENDING):
        raise
    except BaseException as error:
        if is_transient(error):
            if is_conflict(error):
                batch_run.doubt_isolation()
            raise
        for delivery in deliveries:
            if not await _alone(batch_run, delivery, subscriber):
                return
        is_whole = True
    if is_whole:
        await batch_run.finish(is_whole=True, release=False)


async def _guarded(batch_run: BatchRun, delivery: Delivery, subscriber: TransactionalSubscriber) -> bool:
    if batch_run.member.needs_note(delivery):
        return await batch_run.guarded(delivery, lambda: _alone(batch_run, delivery, subscriber))
    return await _alone(batch_run, delivery, subscriber)


async def _alone(batch_run: BatchRun, delivery: Delivery, subscriber: TransactionalSubscriber) -> bool:
    """Handle a message in a transaction of its own; False if it has not run, because the member stops."""
    try:
        return await _together(batch_run, [delivery], subscriber)
    except (LeaseLost, ConnectionUnusable, *ENDING):
        raise
    except BaseException as error:
        if is_transient(error):
            raise
        batch_run.begin_again()
        batch_run.end(delivery, Retry(error=error))
        batch_run.reached = delivery.cursor
        await batch_run.write()
        return True


async def _together(batch_run: BatchRun, deliveries: Sequence[Delivery], subscriber: TransactionalSubscriber) -> bool:
    """Handle messages in as few transactions as can be; whether it came to the end, or the member stops before."""
    rest, tries = deliveries, 1
    while rest and not batch_run.member.is_stopping:
        try:
            rest = await _in_one(batch_run, rest, subscriber)
        except _InTheWay:
            tries += 1
            if tries > BEGINNINGS:
                raise
    return not rest


class _InTheWay(OutboxError):
    """Spans were renewed just when a transaction was about to hold them."""

    sqlstate = CONFLICT


async def _in_one(
    batch_run: BatchRun, deliveries: Sequence[Delivery], subscriber: TransactionalSubscriber
) -> Sequence[Delivery]:
    """Handle messages in one transaction, and give those that could not be part of it."""
    member, batch = batch_run.member, batch_run.batch
    batch_run.begin_again()
    reached: Cursor | None = None
    # Before the spans are held, if they have to be: then they could not be cut any more.
    may_run = batch_run.may_run(deliveries[0])
    async with _transaction(batch_run) as session:
        is_strict = await _held(batch_run, session)
        allow = _refuse_commit(session)
        for number, delivery in enumerate(deliveries):
            if member.is_stopping:
                break
            if number:
                halted = set(batch.halts)
                may_run = batch_run.may_run(delivery)
                if is_strict and batch.halts.keys() - halted:
                    del batch.halts[delivery.slot]
                    break
            if may_run:
                await _one(batch_run, delivery, subscriber, session)
            reached = delivery.cursor
        if reached is None:
            return deliveries
        allow()
        await batch_run.settler.settle_within(session, batch, reached, batch.done)
        end(session)
        batch_run.reached = await unbroken(_commit(batch_run, session, reached))
    return [delivery for delivery in deliveries if delivery.cursor > reached]


@asynccontextmanager
async def _transaction(batch_run: BatchRun) -> AsyncGenerator[AsyncSession, None]:
    """A transaction for handlers, whose session is refused afterwards."""
    async with batch_run.settler.open_session() as session:
        try:
            # A handler that ends the transaction itself is refused by this one.
            async with session.begin():
                yield session
        finally:
            end(session)


def _refuse_commit(session: AsyncSession) -> Callable[[], None]:
    """Let nobody commit before the returned function is called: the neighbours' effects would go without the cursor."""
    sync = session.sync_session

    def refuse(_: object) -> None:
        if sync.get_nested_transaction() is None:
            msg = "A transactional handler must not commit its session: that happens when it has returned."
            raise OwnCommit(msg)

    event.listen(sync, "before_commit", refuse)
    return lambda: event.remove(sync, "before_commit", refuse)


async def _held(batch_run: BatchRun, session: AsyncSession) -> bool:
    try:
        await session.connection()
        return await batch_run.lock_within(session)
    except LeaseLost:
        raise
    except Exception as error:
        if is_conflict(error):
            raise _InTheWay from error
        # Before the first handler: no message is to blame for it.
        group = batch_run.member.group
        msg = f"No connection for the transaction of group {group.name!r}: {error!r}"
        raise ConnectionUnusable(msg) from error


async def _commit(batch_run: BatchRun, session: AsyncSession, reached: Cursor) -> Cursor:
    await batch_run.commit(session)
    await batch_run.committed(reached)
    return reached


async def _one(
    batch_run: BatchRun, delivery: Delivery, subscriber: TransactionalSubscriber, session: AsyncSession
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
        batch_run.end(delivery, Retry(error=error))
    else:
        batch_run.end(delivery, DONE)
