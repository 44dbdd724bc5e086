"""The inbox among the cases of `bench.ten_million`: a new message, one that comes again, and a slice of retention."""

from datetime import timedelta
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine

from bench.large_tables import CONSUMER, OLDEST_DAYS, SOURCE, Filled
from faststream_outbox.events import ReceiptsCleaned
from faststream_outbox.inbox import Inbox

MESSAGES = 500


def _inbox(engine: AsyncEngine, filled: Filled, keep: timedelta | None = None) -> Inbox:
    # Without retention nothing runs beside what is measured.
    return Inbox(engine, filled.inbox, consumer=CONSUMER, keep=keep)


async def receive(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Messages that nobody has seen, each in a transaction of its own."""
    inbox = _inbox(engine, filled)
    for _ in range(MESSAGES):
        async with inbox.receive(uuid4(), source=SOURCE) as receipt:
            assert receipt.is_new
    return MESSAGES


async def receive_again(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Messages that have receipts, from all over the younger half of the table."""
    inbox = _inbox(engine, filled)
    step = filled.rows // 2 // MESSAGES
    for place in range(MESSAGES):
        async with inbox.receive(filled.received(filled.rows - 1 - place * step), source=SOURCE) as receipt:
            assert not receipt.is_new
    return MESSAGES


async def clean_receipts(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Delete the receipts that became too old since the last time; a unit is one receipt."""
    inbox = _inbox(engine, filled, timedelta(days=OLDEST_DAYS - number - 0.5))
    cleaned: list[ReceiptsCleaned] = []
    inbox.events.subscribe(cleaned.append, ReceiptsCleaned)
    await inbox.clean()
    return sum(event.count for event in cleaned)
