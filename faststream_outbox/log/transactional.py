"""Handlers that take the transaction: their writes, the cursor and the fence commit together, or not at all.

A batch is one transaction with a savepoint for each message; a message that fails is rolled back to its
savepoint and set aside in the same commit. Where the whole does not commit, its messages are tried one by
one, so that only the guilty one fails. Effects in this database happen exactly once. Used by `Outbox`.
"""

from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import ConnectionUnusable, LeaseLost
from faststream_outbox.log.care import carefully
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.handling import Handling, is_transient
from faststream_outbox.log.message import OutboxMessage
from faststream_outbox.log.spans import Cursor
from faststream_outbox.outcomes.failure import ENDING
from faststream_outbox.outcomes.outcome import DONE, Retry
from faststream_outbox.service import unbroken

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
    reader, batch = handling.reader, handling.batch
    handling.begin_again()
    reached: Cursor | None = None
    # A handler that ends the transaction itself is refused by the inner of the two.
    async with reader.client.open_session() as session, session.begin():
        try:
            await session.connection()
        except Exception as error:
            # Before the first handler: no message is to blame for it.
            msg = f"No connection for the transaction of group {reader.group.name!r}: {error!r}"
            raise ConnectionUnusable(msg) from error
        for delivery in deliveries:
            if reader.is_stopping:
                break
            if handling.may_run(delivery):
                await _one(handling, delivery, subscriber, session)
            reached = delivery.cursor
        if reached is None:
            return
        await reader.settle_within(session, batch, reached, batch.done)
        handling.reached = await unbroken(_commit(handling, session, reached))


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
        if not session.is_active or is_transient(error):
            # The transaction itself is gone or in conflict: nothing of it can be kept.
            raise
        handling.end(delivery, Retry(error=error))
    else:
        handling.end(delivery, DONE)
