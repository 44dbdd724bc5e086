"""What a command shows to people, before anything is known of the terminal: tables, facts, sentences, bodies.

Made by `views`, printed by `printing`. Texts stand here as they came, also a stranger's: whoever prints
makes them safe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Mark = Literal["plain", "good", "notice", "warning", "bad"]
"""How much something wants to be seen."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A text that is to be seen."""

    text: str
    mark: Mark


Cell = str | int | datetime | Marked | None
"""None is shown as a dash; numbers stand at the right."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. Where it has no rows, `empty` is said instead."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one pair a line."""

    pairs: Sequence[tuple[str, Cell]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence, or several lines."""

    text: str
    mark: Mark = "plain"


@dataclass(frozen=True, slots=True)
class Quoted:
    """Several lines of somebody else, such as a traceback; set in, so that none is taken for ours."""

    text: str
    title: str


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a message."""

    payload: bytes
    title: str = "body"
    is_full: bool = False
    """Whether all of it is shown, however long it is."""


Block = Grid | Facts | Said | Quoted | Body
