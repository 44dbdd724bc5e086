"""Exit codes, and the answers and refusals of commands that carry them.

The same for every command, so that a script can tell a fault of its own from one of the database. docs/cli.md has the
table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from faststream_outbox._internal.cli.blocks import Block


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
