"""Who hears what; and a listener that raises disturbs nobody."""

import logging
import re

import pytest

from faststream_outbox._internal.events.event_log import write_event_log
from faststream_outbox._internal.events.types import ListenerDeaf, ListenerReady, LoopCrashed, StatementFailed
from faststream_outbox.events import Event, Events
from tests.cases import each
from tests.events.samples import ERROR, SAMPLES

READY, DEAF = ListenerReady("channel"), ListenerDeaf("channel")


def test_listener_hears_the_types_that_it_asked_for_and_all_if_it_asked_for_none() -> None:
    events, heard, everything = Events(), [], []
    events.subscribe(heard.append, ListenerReady)
    events.subscribe(everything.append)
    for event in SAMPLES:
        events.emit(event)
    assert [type(event) for event in heard] == [ListenerReady]
    assert everything == SAMPLES


def test_events_know_whether_anyone_listens() -> None:
    events = Events()
    assert ListenerReady not in events
    undo = events.subscribe(print, ListenerReady)
    assert ListenerReady in events
    assert ListenerDeaf not in events
    undo()
    assert ListenerReady not in events


def test_unsubscribed_listener_hears_no_more_and_others_do() -> None:
    events, one, other = Events(), [], []
    undo = events.subscribe(one.append)
    events.subscribe(other.append)
    events.emit(READY)
    undo()
    undo()
    events.emit(DEAF)
    assert (one, other) == ([READY], [READY, DEAF])


def test_listener_may_unsubscribe_while_it_hears() -> None:
    events, heard = Events(), []

    def once(event: Event) -> None:
        heard.append(event)
        undo()

    undo = events.subscribe(once)
    events.subscribe(heard.append)
    events.emit(READY)
    events.emit(DEAF)
    assert heard == [READY, READY, DEAF]


def test_raising_listener_does_not_disturb(caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), []

    def broken(event: Event) -> None:
        raise ERROR

    events.subscribe(broken)
    events.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        events.emit(READY)
        events.emit(DEAF)
    assert heard == [READY, DEAF]
    # once, not for every event
    (record,) = caplog.records
    assert record.name == "faststream_outbox"
    assert record.exc_info[1] is ERROR


def test_another_kind_of_error_of_the_same_listener_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    events, errors = Events(), [ValueError("a"), ValueError("b"), KeyError("c")]

    def broken(event: Event) -> None:
        raise errors.pop(0)

    events.subscribe(broken)
    for _ in range(3):
        events.emit(READY)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError, KeyError]


def test_journal_writes_what_an_operator_must_see(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    undo = write_event_log(events, logging.getLogger("mine"))
    with caplog.at_level(logging.DEBUG, logger="mine"):
        events.emit(LoopCrashed("outbox claimer", ERROR))
        events.emit(ListenerDeaf("outbox_outbox"))
        undo()
        events.emit(ListenerDeaf("outbox_outbox"))
    assert [(record.name, record.levelname) for record in caplog.records] == [("mine", "ERROR"), ("mine", "WARNING")]
    assert caplog.records[0].exc_info
    assert "listen_dsn" in caplog.records[1].getMessage()


class Refusal(Exception):
    """An error of a driver, which has a SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__('relation "outbox" does not exist')
        self.sqlstate = sqlstate


ADVICE = {"42P01": r"migrations.*validate_schema", "42703": r"migrations.*validate_schema"}
ADVICE |= {"42501": r"GRANT", "57P03": r"Trying again\.$"}


@each("sqlstate", ADVICE)
def test_journal_says_what_to_do_about_a_connection_that_cannot_work(
    sqlstate: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    events = Events()
    write_event_log(events, logging.getLogger("test"))
    events.emit(StatementFailed("claim", Refusal(sqlstate)))
    assert re.search(ADVICE[sqlstate], caplog.messages[0])
