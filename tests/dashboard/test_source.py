"""What a dashboard asks, and how an error reads on its screens."""

import logging

import pytest
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.dashboard.source import describe, source_of
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.errors import InvalidOption, UnknownName
from faststream_outbox.log import make_log_tables
from faststream_outbox.schema import make_outbox_table
from tests.cases import each

ENGINE = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
QUEUES = Tables(table=make_outbox_table(MetaData()))
TOPICS = Tables(log_tables=make_log_tables(MetaData(), "outbox_log"))


class Said(Exception):
    """What a driver raises."""

    def __init__(self, text: str, sqlstate: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def of_driver(sqlstate: str, text: str = "<class 'x.Y'>: it failed\nDETAIL: secret") -> DBAPIError:
    return DBAPIError("select secret", {}, Said(text, sqlstate))


@each(
    ("error", "said"),
    [
        (UnknownName("No queue 'x' is known."), "No queue 'x' is known."),
        (of_driver("42P01"), "A table or a column is missing"),
        (of_driver("42703"), "A table or a column is missing"),
        (of_driver("3F000"), "A table or a column is missing"),
        (of_driver("57014"), "The database took too long to answer this."),
        (TimeoutError(), "The database took too long to answer this."),
        (of_driver("08006"), "The database does not answer."),
        (of_driver("57P01"), "The database does not answer."),
        (ConnectionRefusedError(), "The database does not answer."),
        (of_driver("42883"), "It failed with DBAPIError; the log has the details."),
        (KeyError("secret"), "It failed with KeyError; the log has the details."),
    ],
)
def test_an_error_is_a_sentence(error: Exception, said: str) -> None:
    assert describe(error).startswith(said)


def test_a_missing_right_is_said_with_the_servers_words_and_without_its_details() -> None:
    error = of_driver("42501", "<class 'x.Y'>: permission denied for table outbox\nDETAIL: secret")
    assert describe(error) == (
        "Permission denied for table outbox. GRANT the dashboard's role what it needs for this: docs/security.md has "
        "the list."
    )


def test_what_is_not_known_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "faststream_outbox.dashboard"):
        describe(KeyError("secret"))
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_what_it_lacks_is_refused_with_the_keyword() -> None:
    with pytest.raises(InvalidOption, match="make it with table="):
        _ = source_of(ENGINE, TOPICS, timeout=5).client
    with pytest.raises(InvalidOption, match="make it with log_tables="):
        _ = source_of(ENGINE, QUEUES, timeout=5).outbox
    with pytest.raises(InvalidOption, match="pass dlq_table=make_dlq_table"):
        _ = source_of(ENGINE, QUEUES, timeout=5).dead_letters


def test_without_tables_there_is_nothing_to_see() -> None:
    with pytest.raises(InvalidOption, match="A dashboard needs tables"):
        source_of(ENGINE, Tables(), timeout=5)


def test_a_time_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidOption, match="timeout"):
        source_of(ENGINE, QUEUES, timeout=0)
