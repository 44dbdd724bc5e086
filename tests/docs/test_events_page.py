"""The page of events lists exactly the events that the code has, with their fields and meanings."""

import logging
from dataclasses import fields
from typing import get_args

from faststream_outbox._internal.events.event_log import Noteworthy, entry
from faststream_outbox._internal.events.types import Event
from tests.docs.pages import names, rows
from tests.events.samples import SAMPLES

PAGE, HEADING = "docs/events.md", "## Every event"


def test_page_lists_every_event_with_its_fields_and_meaning() -> None:
    printed = {names(name)[0]: (names(their), meaning) for name, their, meaning in rows(PAGE, HEADING)}
    in_code = {event.__name__: ([field.name for field in fields(event)], event.__doc__) for event in get_args(Event)}
    assert printed == in_code


def test_page_says_at_which_level_events_are_logged() -> None:
    printed = {name: level for level, events in rows(PAGE, "## The log") for name in names(events)}
    levels = {type(event).__name__: entry(event)[0] for event in SAMPLES if isinstance(event, Noteworthy)}
    assert printed == {name: logging.getLevelName(level) for name, level in levels.items()}
