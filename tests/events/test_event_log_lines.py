"""A line of the log stays one line, whatever names and errors hold, and has neither messages nor parameters in it."""

import logging
from dataclasses import fields, replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import DBAPIError

from faststream_outbox._internal.connections.address import Address
from faststream_outbox._internal.connections.cause import said
from faststream_outbox._internal.events.event_log import Noteworthy, write_event_log
from faststream_outbox._internal.events.types import HookFailed, ListenerLost, ListenerReady, OutcomeRefused
from faststream_outbox._internal.outcomes.failure import described
from faststream_outbox._internal.schema.check import _refuse
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.text import one_line
from faststream_outbox.errors import InvalidOption, SchemaMismatch
from faststream_outbox.events import Events
from tests.cases import case, each
from tests.events.samples import SAMPLES

EVIL = "a\nERROR forged \x1b[2J\r\u2028\u202e\x85%s"
SECRET = "hunter2"


class Unsaid(Exception):
    """An error that says more than one line, also of itself."""

    def __repr__(self) -> str:
        return EVIL


def made_evil(event: Any) -> Any:
    evil: dict[str, Any] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, str):
            evil[field.name] = EVIL
        elif isinstance(value, tuple) and value and isinstance(value[0], str):
            evil[field.name] = (EVIL,)
        elif isinstance(value, Exception):
            evil[field.name] = Unsaid()
    return replace(event, **evil)


@pytest.fixture
def event_log(caplog: pytest.LogCaptureFixture) -> Events:
    events = Events()
    write_event_log(events, logging.getLogger("lines"))
    caplog.set_level(logging.DEBUG, "lines")
    return events


def test_every_line_is_one_line(event_log: Events, caplog: pytest.LogCaptureFixture) -> None:
    noteworthy = [event for event in SAMPLES if isinstance(event, Noteworthy)]
    for event in noteworthy:
        with case(event):
            if isinstance(event, ListenerReady):
                # Said only of one that was lost.
                event_log.emit(made_evil(ListenerLost("outbox", None)))
            caplog.clear()
            event_log.emit(made_evil(event))
            (message,) = caplog.messages
            assert message == one_line(message)
            assert message.isprintable()
    assert noteworthy


@each(
    ("given", "shown"),
    [
        ("plain, ä and €", "plain, ä and €"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x7f\x9b", r"\x1b[31mred\x7f\x9b"),
        ("\u2028\u202e\u2066\ud800", r"\u2028\u202e\u2066\ud800"),
    ],
)
def test_what_is_not_seen_is_escaped(given: str, shown: str) -> None:
    assert one_line(given) == shown


def test_sql_to_paste_holds_no_line_of_a_stranger() -> None:
    with pytest.raises(SchemaMismatch) as mismatch:
        _refuse([Difference("outbox index a\nDROP TABLE orders;", "it is\rinvalid", "SELECT 1;")])
    (line,) = [line for line in str(mismatch.value).splitlines() if "DROP TABLE orders;" in line]
    assert line.startswith("-- ")
    assert "invalid" in line


@pytest.fixture
def refused(database_url: URL) -> DBAPIError:
    """An error of SQLAlchemy's with parameters, and with a row in its details."""
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        connection.execute(text("create temporary table t (a text check (a = ''), b text)"))
        with pytest.raises(DBAPIError) as failure:
            connection.execute(text("insert into t values (:a, 'row')"), {"a": SECRET})
    engine.dispose()
    assert SECRET in str(failure.value)
    return failure.value


def test_dead_letter_has_no_parameters(refused: DBAPIError) -> None:
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = ExceptionGroup("several", [refused])
    failure = described(wrapped)
    assert "several" in str(failure.traceback)
    assert "[parameters: " not in str(failure.traceback)
    assert "[parameters: " not in str(described(refused).error_message)


def test_log_has_neither_parameters_nor_rows(
    refused: DBAPIError, event_log: Events, caplog: pytest.LogCaptureFixture
) -> None:
    original = refused.orig
    assert isinstance(original, psycopg.Error)
    assert SECRET in repr(original)
    for error in (refused, original):
        assert "violates check constraint" in said(error)
        event_log.emit(OutcomeRefused("orders", "billing", 1, 1, error))
    event_log.emit(HookFailed("on_terminal_failure", refused))
    assert SECRET not in "\n".join(caplog.messages)
    assert "[parameters: " not in caplog.text


@each("dsn", [f"user:{SECRET}@host", f"mysql://user:{SECRET}@host/x", f"host=a password={SECRET}"])
def test_address_that_cannot_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        Address.of(dsn)
    assert SECRET not in str(failure.value)
    assert failure.value.__context__ is None
