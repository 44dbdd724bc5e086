"""The engine and the broker that the shop's programs share."""

import logging

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from examples.shop.models import log_tables, outbox, outbox_dlq
from examples.shop.settings import settings
from faststream_outbox import OutboxBroker

# Each running handler uses one connection, because the handlers are transactional.
engine = create_async_engine(settings.database_url, pool_size=settings.max_workers * 3)
new_session = async_sessionmaker(engine, expire_on_commit=False)

# DEBUG for the lines "Received" and "Processed": two for each message are too many at INFO.
broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq, log_tables=log_tables, log_level=logging.DEBUG)
