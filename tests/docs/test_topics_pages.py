"""The pages on topics and on the ordered log list every option, every table, and what topics make of options."""

import inspect
from dataclasses import fields
from typing import Any

from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker
from faststream_outbox.log import LogTables, Outbox, make_log_tables
from tests.docs.pages import names, rows
from tests.docs.test_options_page import of_faststream

LOG_PAGE, TABLES_PAGE, TOPICS_PAGE = "docs/ordered-log.md", "docs/tables.md", "docs/topics.md"


def test_page_lists_every_option_of_the_log_with_its_default() -> None:
    printed = {names(name)[0]: eval(names(default)[0]) for name, default, _ in rows(LOG_PAGE, "## Options")}
    in_code: dict[str, Any] = {each.name: each.default for each in inspect.signature(Outbox).parameters.values()}
    del in_code["session_pool"]
    assert printed == in_code


def test_page_lists_every_table_of_the_log() -> None:
    printed = [name for row in rows(TABLES_PAGE, "## Tables of topics") for name in names(row[0])]
    assert sorted(printed) == sorted(table.name for table in make_log_tables(MetaData()).all)
    assert len(printed) == len(fields(LogTables))


def test_page_says_of_every_option_of_a_subscriber_what_it_means_for_a_topic() -> None:
    printed = [name for row in rows(TOPICS_PAGE, "## Options") for name in names(row[0])]
    parameters = inspect.signature(OutboxBroker.subscriber).parameters.values()
    in_code = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} - of_faststream("## A subscriber")
    assert sorted(printed) == sorted(in_code - {"topic", "group", "terminal_flush_batch_size"})
