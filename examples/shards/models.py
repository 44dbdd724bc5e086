"""The tables of a shard. Every shard has all of them, and each customer's rows are in one shard only."""

from sqlalchemy import BigInteger
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from faststream_outbox import make_dlq_table, make_outbox_table


class Base(DeclarativeBase):
    """What the tables share."""

    type_annotation_map = {int: BigInteger}  # noqa: RUF012 - SQLAlchemy's own form


class Order(Base):
    """Something that a customer wants. The customer numbers it, and may ask for the same number again."""

    __tablename__ = "orders"

    customer: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Receipt(Base):
    """Written by a handler, once per order. Nothing here forbids a second one: the example counts them."""

    __tablename__ = "receipts"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    number: Mapped[int]
    delivery: Mapped[int]


outbox = make_outbox_table(Base.metadata)
outbox_dlq = make_dlq_table(Base.metadata)
