"""The tables that somebody was given, as one."""

from typing import Any

import pytest
from sqlalchemy import MetaData, Table

from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log import make_log_tables
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from tests.cases import each

metadata = MetaData()
OUTBOX = make_outbox_table(metadata)
DEAD = make_dlq_table(metadata)
LOG = make_log_tables(metadata, "outbox_log")
INBOX = make_inbox_table(metadata)
ALL = {"table": OUTBOX, "dlq_table": DEAD, "log_tables": LOG, "inbox_table": INBOX}


@each(
    ("given", "kind", "text"),
    [
        ({"table": LOG}, InvalidOptionType, "outbox_table must be a table made by make_outbox_table"),
        ({"table": DEAD}, InvalidOption, "outbox_table is 'outbox_dlq', a table of dead letters"),
        ({"table": INBOX}, InvalidOption, "outbox_table is 'inbox', which lacks the columns"),
        ({"table": OUTBOX, "dlq_table": LOG}, InvalidOptionType, "dlq_table must be a table made by make_dlq_table"),
        ({"table": OUTBOX, "dlq_table": OUTBOX}, InvalidOption, "dlq_table is 'outbox', a queue's table"),
        ({"table": OUTBOX, "dlq_table": INBOX}, InvalidOption, "dlq_table is 'inbox', which lacks the columns"),
        ({"log_tables": OUTBOX}, InvalidOptionType, "log_tables must be what make_log_tables returns, not a Table"),
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
