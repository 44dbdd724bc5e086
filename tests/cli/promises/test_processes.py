"""Processes, as they are shown."""

from datetime import UTC, datetime

from faststream_outbox._internal.cli.commands.status import process_grid, process_named
from faststream_outbox._internal.cli.printing import plain
from faststream_outbox.overview import Process

PROCESS = Process("c1af7b08", "web-1", 42, ("claim", "settle"), (7, 8), datetime(2026, 11, 17, tzinfo=UTC), 3, 0)


def test_each_is_a_row() -> None:
    row = plain(process_grid([PROCESS])).splitlines()[1].split("  ")
    assert [part.strip() for part in row if part.strip()] == [
        *("c1af7b08", "-", "web-1", "42", "claim, settle", "3", "0", "2026-11-17 00:00:00Z", "7 8")
    ]


def test_one_may_have_gone() -> None:
    assert process_named(PROCESS, "c1af7b08") == "c1af7b08 (pid 42 on web-1)"
    assert process_named(None, "c1af7b08") == "c1af7b08 (not connected any more)"
    assert process_named(None, None) is None
