"""The shop's workers: they write receipts and send letters, in any number of processes.

`faststream run examples.shop.worker:app`. The handlers are transactional: what a handler writes, what
it publishes and the end of its message are one commit, so a process that is killed leaves all or nothing.
"""

from faststream import FastStream

from examples.shop.broker import broker, engine
from examples.shop.messages import LETTERS, ORDERS, REMINDERS, LetterWanted, OrderPlaced
from examples.shop.models import Letter, Order, Receipt
from examples.shop.outside import lay_out
from examples.shop.settings import settings
from faststream_outbox import ExponentialRetry
from faststream_outbox.annotations import OutboxMessage, OutboxSession

app = FastStream(broker)

# Three attempts, then a dead letter with the error. A real shop would try for longer.
RETRIES = ExponentialRetry(initial_delay_seconds=0.2, max_attempts=3)
MOST_SECONDS_BETWEEN_LOOKS = min(10.0, settings.lease_seconds / 2)


@app.after_shutdown
async def close() -> None:
    """The engine is the application's: the broker does not close it."""
    await engine.dispose()


@broker.subscriber(
    ORDERS,
    transactional=True,
    max_workers=settings.max_workers,
    lease_ttl_seconds=settings.lease_seconds,
    max_fetch_interval=MOST_SECONDS_BETWEEN_LOOKS,
    retry_strategy=RETRIES,
)
async def write_receipt(placed: OrderPlaced, session: OutboxSession, msg: OutboxMessage) -> None:
    """Write the receipt and ask for a letter; exactly once, whatever happens to this process."""
    claim = msg.raw_message
    order = await session.get_one(Order, placed.order_id)
    words = await lay_out(order.item, order.cents, attempt=claim.attempts_count + 1)
    session.add(
        Receipt(
            order_id=order.id,
            words=words,
            worker=settings.worker_name,
            attempt=claim.attempts_count + 1,
            delivery=claim.deliveries_count,
        )
    )
    # No session: inside a transactional handler a message joins its transaction.
    await broker.publish(LetterWanted(order_id=order.id, kind="receipt"), LETTERS)


@broker.subscriber(
    [LETTERS, REMINDERS],
    transactional=True,
    max_workers=settings.max_workers,
    lease_ttl_seconds=settings.lease_seconds,
    max_fetch_interval=MOST_SECONDS_BETWEEN_LOOKS,
    retry_strategy=RETRIES,
)
async def send_letter(wanted: LetterWanted, session: OutboxSession, msg: OutboxMessage) -> None:
    """Send a letter, on time if it is a reminder. It is a row here; real post cannot be part of a transaction."""
    session.add(Letter(order_id=wanted.order_id, kind=wanted.kind, due_at=msg.raw_message.next_attempt_at))
