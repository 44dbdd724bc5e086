"""The shop's tables and the library's, on one MetaData.

Invoices and the inbox belong to another service, which would have a database of its own. An application migrates
its tables together with Alembic; the demo calls `create_all`.
"""

from datetime import datetime

from sqlalchemy import BigInteger, DateTime, ForeignKey, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from faststream_outbox import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.log import make_log_tables


class Base(DeclarativeBase):
    """What the shop's own tables share."""

    type_annotation_map = {int: BigInteger, datetime: DateTime(timezone=True)}  # noqa: RUF012 - SQLAlchemy's own form


class Order(Base):
    """Something that a customer wants."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    item: Mapped[str]
    cents: Mapped[int]


class Receipt(Base):
    """Written by a worker, once per order. Nothing here forbids a second one: the demo counts them."""

    __tablename__ = "receipts"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    words: Mapped[str]
    worker: Mapped[str]
    attempt: Mapped[int]
    delivery: Mapped[int]


class Letter(Base):
    """A letter to the customer: the receipt, or a reminder. `sent_at` may be later than `due_at`."""

    __tablename__ = "letters"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    kind: Mapped[str]
    due_at: Mapped[datetime]
    sent_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))


class Invoice(Base):
    """Written at the far end, once per order. Nothing here forbids a second one: the demo counts them."""

    __tablename__ = "invoices"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    worker: Mapped[str]


outbox = make_outbox_table(Base.metadata)
outbox_dlq = make_dlq_table(Base.metadata)
log_tables = make_log_tables(Base.metadata, "outbox_log")
inbox_table = make_inbox_table(Base.metadata)
