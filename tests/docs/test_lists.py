"""Tables of the pages list exactly what the code has, with defaults, types and meanings."""

import logging
from collections.abc import Sequence
from dataclasses import fields
from typing import get_args

from prometheus_client import CollectorRegistry
from sqlalchemy import MetaData

from faststream_outbox._internal.doctor.doctor import CHECKS
from faststream_outbox._internal.events.event_log import Noteworthy, entry
from faststream_outbox._internal.events.types import Event
from faststream_outbox._internal.metrics.series import ALL_SERIES, SAMPLED_SERIES, Series
from faststream_outbox.doctor import Finding, Limits
from faststream_outbox.log import LogTables, make_log_tables
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.cases import each
from tests.docs.pages import names, rows
from tests.events.samples import SAMPLES

metadata = MetaData()
OUTBOX, DEAD, LOG = make_outbox_table(metadata), make_dlq_table(metadata), make_log_tables(metadata, "log")
TABLES, DOCTOR, EVENTS, METRICS = "docs/tables.md", "docs/doctor.md", "docs/events.md", "docs/metrics.md"
TYPES = {"counter": "counter", "gauge": "gauge", "seconds": "histogram", "amount": "histogram"}


@each(
    ("page", "heading", "in_code"),
    [
        (TABLES, "## Columns of the outbox", OUTBOX.columns.keys()),
        (TABLES, "## Columns of the dead letters", DEAD.columns.keys()),
        (TABLES, "## Tables of topics", [table.name for table in make_log_tables(MetaData()).all]),
        (DOCTOR, "## The checks", [check.name for check in CHECKS]),
        (DOCTOR, "## From when on", [item.name for item in fields(Limits)]),
        (DOCTOR, "## A finding", [item.name for item in fields(Finding)]),
    ],
)
def test_page_lists_what_there_is(page: str, heading: str, in_code: Sequence[str]) -> None:
    printed = [name for row in rows(page, heading) for name in names(row[0])]
    if page == TABLES:
        # In an order for readers, several in a row.
        assert sorted(printed) == sorted(in_code)
    else:
        assert printed == in_code


def test_every_table_of_the_log_has_a_name() -> None:
    assert len(LOG.all) == len(fields(LogTables))


def test_page_lists_every_index_with_its_columns() -> None:
    in_code = {
        str(index.name): [column.name for column in index.columns] for t in (OUTBOX, DEAD) for index in t.indexes
    }
    assert {names(name)[0]: names(columns) for name, columns, _ in rows(TABLES, "## Indexes")} == in_code


def test_page_says_of_every_check_what_it_sees_what_it_costs_and_what_repairs_it() -> None:
    table = rows(DOCTOR, "## The checks")
    assert [row[1] for row in table] == [check.sees for check in CHECKS]
    assert [row[0] for row in table if not row[2].strip() or not row[3].strip()] == []


def test_page_lists_every_event_with_its_fields_and_meaning() -> None:
    printed = {names(name)[0]: (names(their), meaning) for name, their, meaning in rows(EVENTS, "## Every event")}
    in_code = {event.__name__: ([field.name for field in fields(event)], event.__doc__) for event in get_args(Event)}
    assert printed == in_code


def test_page_says_at_which_level_events_are_logged() -> None:
    printed = {name: level for level, events in rows(EVENTS, "## The log") for name in names(events)}
    levels = {type(event).__name__: entry(event)[0] for event in SAMPLES if isinstance(event, Noteworthy)}
    assert printed == {name: logging.getLevelName(level) for name, level in levels.items()}


def of_series(series: Series) -> tuple[str, str, str, list[str], str]:
    name = f"faststream_outbox_{series.name}" + ("_total" if series.kind == "counter" else "")
    labels = [*(["handler", "group"] if series.of_handler else []), *series.labels]
    return name, series.instrument, TYPES[series.kind], labels, series.help


@each(("heading", "series"), [("## Asked of the database", SAMPLED_SERIES), ("## Counted from events", ALL_SERIES)])
def test_page_lists_every_series(heading: str, series: tuple[Series, ...]) -> None:
    printed = [
        (names(name)[0], names(instrument)[0], kind, names(labels), meaning)
        for name, instrument, kind, labels, meaning in rows(METRICS, heading)[: len(series)]
    ]
    assert printed == [of_series(one) for one in series]


def test_names_of_series_on_the_page_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    PrometheusRecorder(registry=registry, include_bus_metrics=False, sample_every=15)
    made = {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}
    assert made == {of_series(one)[0] for one in (*ALL_SERIES, *SAMPLED_SERIES)}
