"""Printing: tables and colours at a terminal, aligned text elsewhere, and one shape of JSON."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from io import StringIO
from uuid import UUID

from rich.console import Console

from faststream_outbox._internal.cli.exits import Body, Exit, Facts, Grid, Marked, Quoted, Said
from faststream_outbox._internal.cli.printing import as_json, document, show
from faststream_outbox._internal.log.sharing.slots import Cursor

BLOCKS = [
    Grid(("queue", "ready"), [("orders", 1200), ("[bold]x[/bold]", None)], "Queues"),
    Grid(("queue",), [], empty="No queue."),
    Facts([("state", Marked("dead", "bad")), ("at", datetime(2026, 11, 17, tzinfo=UTC))]),
    Said("All is well.", "good"),
    Quoted("line 1\nline 2", "traceback"),
    Body(b"[1]"),
]


def drawn(*, colour: bool, environment: dict[str, str] | None = None) -> str:
    file = StringIO()
    options = {"force_terminal": True, "color_system": "standard"} if colour else {}
    show(BLOCKS, Console(file=file, width=60, markup=False, highlight=False, _environ=environment or {}, **options))  # type: ignore[arg-type]
    return file.getvalue()


def test_into_a_file_goes_aligned_text() -> None:
    assert drawn(colour=False) == (
        "Queues\nqueue           ready\norders          1,200\n[bold]x[/bold]      -\n\nNo queue.\n\n"
        "state  dead\nat     2026-11-17 00:00:00Z\nAll is well.\n\n"
        "traceback\n  line 1\n  line 2\n\nbody\n  [\n    1\n  ]\n"
    )


def test_a_terminal_gets_tables_and_colours() -> None:
    text = drawn(colour=True)
    assert "\x1b[1;31mdead" in text
    assert "───" in text
    assert "[bold]x[/bold]" in text


def test_no_color_is_heeded() -> None:
    text = drawn(colour=True, environment={"NO_COLOR": "1"})
    assert "\x1b[1;31m" not in text
    assert "31m" not in text


@dataclass
class Sample:
    """One of everything."""

    at: datetime
    body: bytes
    cursor: Cursor
    rest: dict[str, object]


def test_json_has_one_shape_and_nothing_but_ascii() -> None:
    at = datetime(2026, 11, 17, 12, tzinfo=timezone(timedelta(hours=2)))
    sample = Sample(
        at, b"\xff\xfe", Cursor(1, 2), {"id": UUID(int=1), "nan": float("nan"), "é\x1b": {1}, "for": timedelta(1)}
    )
    text = document("dead list", Exit.NOTHING, [sample])
    assert text.isascii()
    assert json.loads(text) == {
        "command": "dead list",
        "exit_code": 4,
        "data": [
            {
                "at": "2026-11-17T10:00:00+00:00",
                "body": {"encoding": "base64", "value": "//4="},
                "cursor": {"tick": 1, "position": 2},
                "rest": {"id": str(UUID(int=1)), "nan": None, "é\x1b": [1], "for": 86400.0},
            }
        ],
        "error": None,
    }
    assert as_json(b"text") == {"encoding": "utf-8", "value": "text"}
    assert as_json(Exit.WRONG) == 1
    assert as_json(object)[:6] == "<class"
