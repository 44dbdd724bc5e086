"""The horizon: no message can still appear with an id up to it; and the floors of keys that stand on it.

An id is drawn by an INSERT, and seen when its transaction ends: until then a lower id than those seen may appear.
Whoever inserts holds a lock on the table from before its id is drawn until its end. So when every transaction has
ended that held one after an id was read from the sequence, all ids up to that one are decided. Below the horizon a
claim of a key need not search again where it found nothing: dead index entries of a deep key are not walked for each
run. What is known is known of one server: on another one, which may be behind, it begins anew. Pure: times are given.
Filled by `scanner`, used by `keyed`.
"""

from collections.abc import Iterable
from datetime import datetime

from faststream_outbox._internal.queue.planning.keys import Key

READ_SECONDS = 1.0
READ_AGAIN_SECONDS = 0.05
"""Transactions that insert are short: those that were open are asked for again soon, and then less often."""
MOST_FLOORS = 10_000
"""Keys whose floor is remembered."""


class Horizon:
    """Up to which id everything is decided, on which server, and how far each deep key is empty."""

    def __init__(self) -> None:
        self.server: datetime | None = None
        """When the server began: that is how it is known."""
        self.id = 0
        self.is_wanted = False
        """Whether keys were claimed since it was read."""
        self.read_at = 0.0
        """When it may be read again."""
        self._drawn: int | None = None
        self._writers: frozenset[str] = frozenset()
        self._pause = READ_AGAIN_SECONDS
        self._floors: dict[Key, int] = {}
        self.beginnings = 0
        """How often it began anew: an answer to a question from before is not taken."""

    def wants_reading(self, now: float) -> bool:
        """Whether to ask for drawn ids and for transactions now."""
        return self.is_wanted and self.read_at <= now

    def read(self, server: datetime, drawn: int | None, writers: Iterable[str], now: float) -> None:
        """`drawn` was read from the sequence, and then these transactions had a lock on the table."""
        if server != self.server:
            self.forget()
            self.server = server
        open_ = frozenset(writers)
        if self._drawn is not None:
            self._writers &= open_
            if not self._writers:
                self.id, self._drawn = self._drawn, None
        if self._drawn is None and drawn is not None and drawn > self.id:
            if open_:
                self._drawn, self._writers, self._pause = drawn, open_, READ_AGAIN_SECONDS
            else:
                self.id = drawn
        if self._drawn is None:
            self.is_wanted = False
            self.read_at = now + READ_SECONDS
        else:
            self.read_at = now + self._pause
            self._pause = min(2 * self._pause, READ_SECONDS)

    def failed(self, now: float) -> None:
        """It could not be read."""
        self.read_at = now + READ_SECONDS

    def forget(self) -> None:
        """Begin anew, as after a connection was lost: a server that crashed may give out ids again."""
        self.server, self.id, self._drawn = None, 0, None
        self.beginnings += 1
        self._floors.clear()

    def floor(self, key: Key) -> int | None:
        """No message of the key that was due at once has an id below it."""
        return self._floors.get(key)

    def found(self, key: Key, first: int | None, decided: int) -> None:
        """A claim found `first` as the first of the key, when ids up to `decided` were decided before it began."""
        self._floors.pop(key, None)
        if decided:
            # The last one used is the last in the line of those to be forgotten.
            self._floors[key] = decided if first is None else min(decided, first)
        if len(self._floors) > MOST_FLOORS:
            del self._floors[next(iter(self._floors))]

    def seen(self, key: Key, number: int) -> None:
        """A scan without floors saw this message at the head of the key."""
        if number < self._floors.get(key, number):
            del self._floors[key]
