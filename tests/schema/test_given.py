"""What is given as a table is looked at where it is given."""

from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from faststream_outbox import OutboxBroker
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log import make_log_tables
from faststream_outbox.queue import OutboxClient
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.cases import each

metadata = MetaData()
OUTBOX = make_outbox_table(metadata)
DEAD = make_dlq_table(metadata)
LOG = make_log_tables(metadata, "outbox_log", "log_offsets")
ORDERS = Table("orders", metadata, Column("id", BigInteger, primary_key=True))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)


def _broker(**tables: Any) -> OutboxBroker:
    return OutboxBroker(**{"outbox_table": OUTBOX, "dlq_table": None} | tables)


@each("given", ["outbox", None, 1, LOG, Order])
@each("name", ["outbox_table", "dlq_table"])
def test_what_is_no_table_is_refused(name: str, given: object) -> None:
    if name == "dlq_table" and given is None:
        return
    with pytest.raises(InvalidOptionType, match=rf"{name} must be a table made by make_{name.replace('_table', '')}"):
        _broker(**{name: given})


def test_a_table_of_something_else_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(InvalidOption, match=r"outbox_table.*'orders'.*lacks.*acquired_at.*make_outbox_table"):
        _broker(outbox_table=ORDERS)


def test_an_older_table_is_refused_with_the_columns_that_it_lacks() -> None:
    older = make_outbox_table(MetaData())
    older._columns.remove(older.c.message_id)  # type: ignore[attr-defined]
    with pytest.raises(InvalidOption, match="lacks the columns message_id"):
        _broker(outbox_table=older)


def test_tables_that_are_mixed_up_are_named() -> None:
    with pytest.raises(InvalidOption, match=r"outbox_table is 'outbox_dlq', a table of dead letters"):
        _broker(outbox_table=DEAD, dlq_table=OUTBOX)


def test_the_outbox_as_its_own_dead_letters_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"dlq_table is 'outbox', a queue's table"):
        _broker(dlq_table=OUTBOX)


@each("given", ["outbox_log", OUTBOX, LOG.log])
def test_what_is_no_log_is_refused(given: object) -> None:
    with pytest.raises(InvalidOptionType, match="log_tables must be what make_log_tables returns"):
        _broker(log_tables=given)


def test_tables_of_the_factories_are_taken() -> None:
    _broker(dlq_table=DEAD, log_tables=LOG)


async def test_the_engines_client_refuses_them_too(engine: AsyncEngine) -> None:
    with pytest.raises(InvalidOption, match="a table of dead letters"):
        OutboxClient(engine, DEAD)
