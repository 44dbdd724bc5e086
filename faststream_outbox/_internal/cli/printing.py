"""Printing an answer: tables and colours on a terminal, aligned text into a file or a pipe, or one JSON object.

Rich is given texts and never markup, and every text goes through `one_line` or `lines` first. Answers go to the
standard output; questions, progress and errors to the standard error, so that a pipe gets the answer alone. JSON has
one shape for every command, `{"command", "exit_code", "data", "error"}`, with fields of dataclasses under their names,
ISO times, and bytes as text or base64: docs/cli.md has it. Nothing but ASCII is in it, so that no byte of a stranger
reaches a terminal as it is. Used by `command`, by `asking`, and by commands that show a plan before they ask.
"""

import json
import math
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, assert_never
from uuid import UUID

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from faststream_outbox._internal.cli.exits import (
    Answer,
    Block,
    Body,
    Cell,
    Exit,
    Facts,
    Grid,
    Mark,
    Marked,
    Quoted,
    Said,
)
from faststream_outbox._internal.text import body, lines, moment, one_line


def document(command: str, exit: Exit, data: object, error: tuple[str, str] | None = None) -> str:
    """What a command prints: one object on one line, or on several for people who look at it."""
    shown = None if error is None else {"type": error[0], "message": error[1]}
    return json.dumps({"command": command, "exit_code": int(exit), "data": as_json(data), "error": shown})


def as_json(value: Any) -> Any:
    """A value made of what JSON has."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return _body(value)
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    as_dict: Any = getattr(value, "_asdict", None)
    if as_dict is not None:
        return as_json(as_dict())
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [as_json(each) for each in value]
    return str(value)


def _body(value: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "value": value.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "value": b64encode(value).decode("ascii")}


_STYLES: dict[Mark, str] = {
    "plain": "",
    "good": "green",
    "notice": "cyan",
    "warning": "yellow",
    "bad": "bold red",
}

LONGEST_LINE = 1500
"""Characters of a line that says what is wrong; what was given may have millions."""
_NUMBER = re.compile(r"[\d,]+\+?|-", re.ASCII)


def console(*, to_stderr: bool = False) -> Console:
    """A console on what the standard output or the standard error is now."""
    file = sys.stderr if to_stderr else sys.stdout
    return Console(file=file, markup=False, highlight=False, emoji=False, soft_wrap=False)


class Printer:
    """Prints what one command has to say.

    command: its name, as JSON carries it.
    as_json: whether the answer is for a program.
    """

    def __init__(self, command: str, *, as_json: bool) -> None:
        self.command = command
        self.as_json = as_json

    def answer(self, answer: Answer) -> None:
        """Print the answer."""
        if self.as_json:
            print(document(self.command, answer.exit, answer.data), flush=True)
        else:
            show(answer.blocks, console())

    def plan(self, blocks: Sequence[Block]) -> None:
        """Print what would happen; beside the answer where that is for a program."""
        show(blocks, console(to_stderr=self.as_json))

    def hidden(self, tables: Sequence[str]) -> None:
        """Print beside the answer that there may be more than it has."""
        if tables:
            said = (
                f"Row-level security hides rows of {', '.join(tables)} from this role: there may be more of them. "
                "docs/security.md has the policy that shows them."
            )
            show([Said(said, "warning")], console(to_stderr=True))

    def fault(self, exit: Exit, kind: str, message: str) -> None:
        """Print why there is no answer."""
        message = "\n".join(map(_cut, message.split("\n")))
        if self.as_json:
            print(document(self.command, exit, None, (kind, message)), flush=True)
        else:
            show([Said(f"Error: {message}", "bad")], console(to_stderr=True))


def _cut(line: str) -> str:
    """A line without its middle, if it is long: what is wrong is said at the beginning, and what to do at the end."""
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]}…{line[-half:]}"


def show(blocks: Iterable[Block], to: Console) -> None:
    """Print blocks, one below the other."""
    for place, block in enumerate(blocks):
        if place and not isinstance(block, Said):
            to.print()
        if to.is_terminal:
            _show(block, to)
        else:
            to.file.write(plain(block) + "\n")
    to.file.flush()


def _show(block: Block, to: Console) -> None:
    match block:
        case Grid() if not block.rows:
            to.print(Text(one_line(block.empty), style="dim"))
        case Grid():
            if block.title:
                to.print(Text(one_line(block.title), style="bold"))
            table = Table(box=SIMPLE_HEAD, pad_edge=False)
            for place, name in enumerate(block.columns):
                table.add_column(name, justify="right" if _is_number(block, place) else "left", overflow="fold")
            for row in block.rows:
                table.add_row(*map(_text, row))
            to.print(table)
        case Facts():
            if block.title:
                to.print(Text(one_line(block.title), style="bold"))
            table = Table(box=None, show_header=False, pad_edge=False)
            table.add_column(style="dim")
            table.add_column(overflow="fold")
            for name, value in block.pairs:
                table.add_row(name, _text(value))
            to.print(table)
        case Said():
            # Not wrapped: SQL that is to be pasted must keep its comments on their lines.
            to.print(Text(lines(block.text), style=_STYLES[block.mark]), soft_wrap=True)
        case Quoted() | Body():
            to.print(Text(one_line(block.title), style="bold"))
            to.print(Text(_quoted(block)), soft_wrap=True)
        case _:
            assert_never(block)


def _is_number(grid: Grid, place: int) -> bool:
    """Whether a column has numbers, some of which may be missing, or bounds."""
    words = [_worded(row[place]) for row in grid.rows]
    return any(word != "-" for word in words) and all(_NUMBER.fullmatch(word) for word in words)


def _text(cell: Cell) -> Text:
    return Text(_worded(cell), style=_STYLES[cell.mark] if isinstance(cell, Marked) else "")


def _worded(cell: Cell) -> str:
    match cell:
        case None:
            return "-"
        case Marked():
            return one_line(cell.text)
        case datetime():
            return moment(cell)
        case int():
            return f"{cell:,}"
        case str():
            return one_line(cell)


def plain(block: Block) -> str:
    """A block as text that is aligned and not cut, for a file or a pipe."""
    match block:
        case Grid() if not block.rows:
            return one_line(block.empty)
        case Grid():
            return "\n".join([one_line(block.title)] * bool(block.title) + _aligned(block))
        case Facts():
            width = max((len(name) for name, _ in block.pairs), default=0)
            pairs = [f"{name:<{width}}  {_worded(value)}".rstrip() for name, value in block.pairs]
            return "\n".join([one_line(block.title)] * bool(block.title) + pairs)
        case Said():
            return lines(block.text)
        case Quoted() | Body():
            return f"{one_line(block.title)}\n{_quoted(block)}"
        case _:
            assert_never(block)


def _quoted(block: Quoted | Body) -> str:
    text = lines(block.text) if isinstance(block, Quoted) else body(block.payload, is_full=block.is_full)
    return "  " + text.replace("\n", "\n  ")


def _aligned(grid: Grid) -> list[str]:
    rows = [list(grid.columns), *([_worded(cell) for cell in row] for row in grid.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(grid.columns))]
    right = [_is_number(grid, place) for place in range(len(grid.columns))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
