"""The shards: an engine and a broker for each database, and which of them a customer belongs to.

An application gets their addresses from its settings. Their number and order must be the same in every process:
with another number most customers belong elsewhere, and their rows have to be moved first.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.shards.models import outbox, outbox_dlq
from faststream_outbox import OutboxBroker


@dataclass(frozen=True, slots=True)
class Shard:
    """One database with everything of its customers."""

    name: str
    engine: AsyncEngine
    broker: OutboxBroker


def open_shard(name: str, url: str, *, handlers: int) -> Shard:
    """A shard by its address; nothing connects yet."""
    # Each running handler uses one connection, because the handlers are transactional.
    engine = create_async_engine(url, pool_size=handlers * 2, pool_pre_ping=True)
    # DEBUG for the lines "Received" and "Processed": two for each message are too many at INFO.
    log = logging.getLogger(f"shards.{name}")
    broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq, logger=log, log_level=logging.DEBUG)
    return Shard(name, engine, broker)


def shard_of(customer: str, count: int) -> int:
    """Which shard a customer's rows are in: the same in every process and for ever, as Python's `hash` is not."""
    return int.from_bytes(sha256(customer.encode()).digest()[:8]) % count


def home_of(customer: str, shards: Sequence[Shard]) -> Shard:
    """The shard itself."""
    return shards[shard_of(customer, len(shards))]
