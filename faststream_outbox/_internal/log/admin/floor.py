"""The floor: from where on the messages of a log must stay.

A message must stay if a living group has not read it, if it may still appear, or if it is not sequenced. That takes
a walk over the ticks that the slowest group has yet to read, so it is found once, in portions, and not for each slice
that is deleted. It stays true while no living group stands before the place from which it was found: cursors move on,
and new ticks have nothing below it. Whoever deletes asks for that, under the lock on retention. Used by `retention`
and `partitions`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from faststream_outbox._internal.sql.log_admin_rows import LowestUnread, Slowest
from faststream_outbox._internal.sql.rows import named

PORTION = 100_000
"""Ticks that are walked over by one statement."""

Ask = Callable[[str, dict[str, Any]], Awaitable[Sequence[Any]]]
"""Runs one of the statements about retention."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Messages from `first_kept` on stay, as long as no living group stands before this tick and position."""

    tick: int
    position: int
    first_kept: int

    @property
    def place(self) -> dict[str, Any]:
        """As parameters."""
        return {"tick": self.tick, "position": self.position}


async def find_floor(ask: Ask, group_seconds: float, *, first: int = 0) -> Floor:
    """From where on messages must stay; not searched further once nothing from `first` on may go."""
    (slowest,) = named(Slowest, await ask("slowest", {"group_seconds": group_seconds}))
    first_kept = slowest.first_kept
    after: int | None = slowest.tick
    while after is not None and first_kept > first:
        (unread,) = named(LowestUnread, await ask("lowest_unread", {"after": after, "limit": PORTION}))
        first_kept = first_kept if unread.lowest is None else min(first_kept, unread.lowest)
        after = unread.last if unread.ticks == PORTION else None
    return Floor(slowest.tick, slowest.position, first_kept)
