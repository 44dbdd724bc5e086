"""Messages that cannot be read, found out by lone reads of them that failed.

A read of one message that fails again and again, while the same connection answers as soon as the content is left out,
is that message's own failure: content that the server or the driver cannot read, or that the line cannot carry in time.
It is read without its content from then on, for a while: each group parks it, and an operator may have it tried again.
Pure bookkeeping on given times. Used by `fetcher`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from faststream_outbox._internal.sql.log_rows import ReadMessage, WaitingMessage
from faststream_outbox.errors import NotReadable

STRIKES = 3
"""Lone reads of a message that may fail before it is read without its content."""
STRIKE_SECONDS = 3.0
"""How far the first and the last of them are apart at least: a disk or a server may stumble for a moment."""
KEEP_SECONDS = 600.0
"""How long its content is left out; then it is tried again."""
MOST = 100

Row = ReadMessage | WaitingMessage


@dataclass(slots=True)
class _Failing:
    """What is known of a message that could not be read."""

    identity: tuple[Any, ...]
    error: Exception
    since: float
    strikes: int = 0
    left_out_until: float = 0.0


class Unreadable:
    """Which messages cannot be read, as far as this process knows."""

    def __init__(self) -> None:
        self._failing: dict[int, _Failing] = {}

    def positions(self, now: float) -> list[int]:
        """Of those whose content is to be left out."""
        if not self._failing:
            return []
        over = [at for at, failing in self._failing.items() if 0.0 < failing.left_out_until <= now]
        for position in over:
            del self._failing[position]
        return [position for position, failing in self._failing.items() if failing.left_out_until]

    def failed(self, row: Row, error: Exception, now: float) -> bool:
        """A lone read of this message failed, although the rest of it can be read; whether it is left out now."""
        failing = self._failing.get(row.position)
        if failing is None or failing.identity != _identity(row):
            while len(self._failing) >= MOST:
                del self._failing[next(iter(self._failing))]
            failing = self._failing[row.position] = _Failing(_identity(row), error, now)
        failing.error = error
        failing.strikes += 1
        if failing.strikes >= STRIKES and now - failing.since >= STRIKE_SECONDS:
            failing.left_out_until = now + KEEP_SECONDS
        return bool(failing.left_out_until)

    def were_read(self, rows: Iterable[Row]) -> bool:
        """Take note of what could be read; False if content was left out of another message under a known position.

        A server that was a little behind gives positions out again.
        """
        if not self._failing:
            return True
        are_right = True
        for row in rows:
            failing = self._failing.get(row.position)
            if failing is not None and (row.metadata is not None or failing.identity != _identity(row)):
                del self._failing[row.position]
                are_right = are_right and row.metadata is not None
        return are_right

    def error_of(self, position: int) -> NotReadable:
        """Why a message cannot be read, to be kept with it."""
        failing = self._failing.get(position)
        why = f": {type(failing.error).__name__}: {failing.error}" if failing is not None else ""
        return NotReadable(
            f"not_readable: its content could not be read again and again{why}. Once it can be, let it run "
            "with Outbox.parked.retry(…), or end it with skip(…)."
        )


def _identity(row: Row) -> tuple[Any, ...]:
    return row.uri, row.event_id, row.created_at, row.transaction_id
