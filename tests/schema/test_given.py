"""What is given as tables is looked at where it is given, and stands together as one."""

from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log import make_log_tables
from faststream_outbox.queue import OutboxClient
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from tests.cases import each


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)


metadata = MetaData()
OUTBOX = make_outbox_table(metadata)
DEAD = make_dlq_table(metadata)
LOG = make_log_tables(metadata, "outbox_log")
INBOX = make_inbox_table(metadata)
ALL = {"table": OUTBOX, "dlq_table": DEAD, "log_tables": LOG, "inbox_table": INBOX}
ORDERS = Table("orders", metadata, Column("id", BigInteger, primary_key=True))
OLDER = make_outbox_table(MetaData())
OLDER._columns.remove(OLDER.c.message_id)  # type: ignore[attr-defined]
NO_OUTBOX = "outbox_table must be a table made by make_outbox_table"
NO_DLQ = "dlq_table must be a table made by make_dlq_table"
NO_LOG = "log_tables must be what make_log_tables returns"


@each(
    ("given", "kind", "text"),
    [
        *(({"table": given}, InvalidOptionType, NO_OUTBOX) for given in ("outbox", 1, LOG, Order)),
        ({"table": DEAD}, InvalidOption, "outbox_table is 'outbox_dlq', a table of dead letters"),
        ({"table": INBOX}, InvalidOption, "outbox_table is 'inbox', which lacks the columns"),
        ({"table": ORDERS}, InvalidOption, "outbox_table.*'orders'.*lacks.*acquired_at.*make_outbox_table"),
        ({"table": OLDER}, InvalidOption, "lacks the columns message_id"),
        ({"table": DEAD, "dlq_table": OUTBOX}, InvalidOption, "outbox_table is 'outbox_dlq', a table of dead letters"),
        *(({"table": OUTBOX, "dlq_table": given}, InvalidOptionType, NO_DLQ) for given in ("outbox", 1, LOG, Order)),
        ({"table": OUTBOX, "dlq_table": OUTBOX}, InvalidOption, "dlq_table is 'outbox', a queue's table"),
        ({"table": OUTBOX, "dlq_table": INBOX}, InvalidOption, "dlq_table is 'inbox', which lacks the columns"),
        *(({"log_tables": given}, InvalidOptionType, NO_LOG) for given in ("outbox_log", LOG.log)),
        ({"log_tables": OUTBOX}, InvalidOptionType, f"{NO_LOG}, not a Table"),
        ({"inbox_table": LOG}, InvalidOptionType, "table must be a table made by make_inbox_table"),
        ({"inbox_table": OUTBOX}, InvalidOption, "table is 'outbox', a queue's table"),
        ({"inbox_table": DEAD}, InvalidOption, "table is 'outbox_dlq', which lacks the columns"),
    ],
)
def test_what_is_no_such_table_is_refused(given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        Tables(**given).check()


@each("given", [{}, ALL, {"dlq_table": DEAD}, *({name: each} for name, each in ALL.items())])
def test_tables_of_the_factories_are_taken(given: dict[str, Any]) -> None:
    Tables(**given).check()


async def test_the_broker_and_the_client_of_the_engine_refuse_them(engine: AsyncEngine) -> None:
    for table in (None, Order):
        with pytest.raises(InvalidOptionType, match=NO_OUTBOX):
            OutboxBroker(outbox_table=table, dlq_table=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="dlq_table is 'outbox', a queue's table"):
        OutboxBroker(outbox_table=OUTBOX, dlq_table=OUTBOX)
    with pytest.raises(InvalidOptionType, match=NO_LOG):
        OutboxBroker(outbox_table=OUTBOX, dlq_table=None, log_tables=OUTBOX)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a table of dead letters"):
        OutboxClient(engine, DEAD)


@each("name", list(ALL))
def test_what_is_missing_is_taken_of_the_other_and_nothing_else(name: str) -> None:
    without = Tables(**(ALL | {name: None}))
    other = Tables(
        make_outbox_table(MetaData()),
        make_dlq_table(MetaData()),
        make_log_tables(MetaData(), "outbox_log"),
        make_inbox_table(MetaData()),
    )
    assert without.or_else(other).keywords() == ALL | {name: other.keywords()[name]}


@each(
    ("given", "tables"),
    [
        ({}, []),
        (ALL, [OUTBOX, DEAD, INBOX, *LOG.all]),
        ({"log_tables": LOG, "dlq_table": DEAD}, [DEAD, *LOG.all]),
    ],
)
def test_single_tables_come_before_those_of_the_log(given: dict[str, Any], tables: list[Table]) -> None:
    assert Tables(**given).all == tables


def test_keywords_make_the_same_again() -> None:
    assert Tables(**Tables(**ALL).keywords()) == Tables(**ALL)
