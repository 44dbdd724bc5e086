"""The demo's tables: two of the shop's own, and the two of the library, on one MetaData.

An application migrates them together with Alembic; the demo calls `create_all`.
"""

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, Table, Text, text

from faststream_outbox import make_dlq_table, make_outbox_table

metadata = MetaData()

orders = Table(
    "orders",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("customer", Text, nullable=False),
    Column("cents", Integer, nullable=False),
)

# What a handler has done. Nothing here forbids a second receipt for an order: the demo counts them.
receipts = Table(
    "receipts",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("order_id", BigInteger, nullable=False),
    Column("queue", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("delivery", Integer, nullable=False),
    Column("due_at", DateTime(timezone=True), nullable=False),
    Column("handled_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
)

outbox = make_outbox_table(metadata)
outbox_dlq = make_dlq_table(metadata)
