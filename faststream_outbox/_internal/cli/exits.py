"""What a command answers: an exit code, data for programs, and blocks for people; or why there is no answer.

Exit codes are the same for every command, so that a script can tell a fault of its own from one of the database.
docs/cli.md has the table. `fault_of` makes a code and a message of an error, without a traceback; what it does not know
is a mistake of the program's, and keeps its own. Blocks are tables, facts, sentences and bodies before anything is
known of the terminal: texts stand in them as they came, also a stranger's, and whoever prints makes them safe. Pure.
Made by the commands, read by `command`, shown by `printing`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Literal

from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, SQLAlchemyError

from faststream_outbox import errors
from faststream_outbox._internal.connections.cause import MISSING, first_line, has_state, sqlstate_of

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


class Exit(IntEnum):
    """What a command ends with."""

    FINE = 0
    WRONG = 1
    """Something is wrong, or not everything was done: what was asked for was found, answered no, or in conflict."""
    USAGE = 2
    UNREACHABLE = 3
    NOTHING = 4
    """Nothing matched: no such queue, group, table or id."""
    REFUSED = 5
    """The database refused or failed: a missing right, a table that is not as needed, a timeout."""
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has found or done: for programs, for people, and for scripts."""

    data: object
    blocks: Sequence[Block]
    exit: Exit = Exit.FINE


class Refusal(Exception):
    """A command will not do what was asked; the message says what to do instead."""

    def __init__(self, message: str, exit: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.exit = exit


_NEVER_CONNECTED = ("08", "28", "3D", "57P", "53300")
"""Connection failures, wrong passwords, no such database, a server that starts or stops, and one that is full."""
_CHECK = " `faststream-outbox schema check` says what differs from what this version needs."


@dataclass(frozen=True, slots=True)
class Fault:
    """What to say instead of an answer."""

    exit: Exit
    kind: str
    message: str


def fault_of(error: BaseException, *, is_connecting: bool) -> Fault | None:
    """What an error means; None if nothing is known of it.

    is_connecting: whether nothing had been asked of the database yet.
    """
    kind = type(error).__name__
    if isinstance(error, Refusal):
        return Fault(error.exit, kind, str(error))
    if isinstance(error, errors.OutboxError):
        return Fault(_exit_of(error), kind, str(error))
    if is_connecting and isinstance(error, UnicodeError):
        # Python says so of the name of a host that is too long, or has two dots in a row.
        return Fault(
            Exit.UNREACHABLE, kind, f"The database cannot be reached: its host has no such name: {first_line(error)}"
        )
    if _is_of_driver(error) or isinstance(error, OSError | TimeoutError):
        state = sqlstate_of(error)
        if state is None or has_state(error, *_NEVER_CONNECTED):
            if is_connecting or isinstance(error, OSError | InterfaceError) or state is not None:
                message = f"The database cannot be reached: {first_line(error)}"
                return Fault(Exit.UNREACHABLE, kind, message)
            return Fault(Exit.REFUSED, kind, f"The database did not answer in time: {first_line(error)}")
        hint = _CHECK if has_state(error, *MISSING) else ""
        return Fault(Exit.REFUSED, kind, f"The database refused: {first_line(error)}{hint}")
    return None


def _exit_of(error: errors.OutboxError) -> Exit:
    if isinstance(error, errors.UnknownName):
        return Exit.NOTHING
    if isinstance(error, errors.SchemaMismatch | errors.GroupInUse):
        return Exit.WRONG
    if isinstance(error, errors.MissingRight | TimeoutError):
        return Exit.REFUSED
    if isinstance(error, errors.ConnectionUnusable):
        return Exit.UNREACHABLE
    return Exit.USAGE


def _is_of_driver(error: BaseException) -> bool:
    if isinstance(error, ArgumentError):
        return False
    return isinstance(error, DBAPIError | SQLAlchemyError) or type(error).__module__.split(".")[0] in (
        "asyncpg",
        "psycopg",
    )
