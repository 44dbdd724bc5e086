"""Keys that may have messages to claim, and how far each has been searched.

A `KeyRing` has them in their turn, with those that are in flight. At most one run of a key is in flight in this
process; the claim itself sees to it across processes. A key whose run is settled goes to the back of the line, so that
a deep key does not starve the others. Part of a `ClaimPlan`.

The `Horizon` is the id up to which no message can still appear. An id is drawn by an INSERT, and seen when its
transaction ends: until then a lower id than those seen may appear. Whoever inserts holds a lock on the table from
before its id is drawn until its end. So when every transaction has ended that held one after an id was read from the
sequence, all ids up to that one are decided. Below the horizon a claim of a key need not search again where it found
nothing: dead index entries of a deep key are not walked for each run. What is known is known of one server: on another
one, which may be behind, it begins anew. Filled by `scanner`, used by `keyed`.

Pure: times are given.
"""

from collections.abc import Iterable
from datetime import datetime

Key = tuple[str, str]
"""Queue and key."""

LOW_PRIORITY_TURN = 10
"""Every so many turns the lowest priority goes first."""
LEAST = float("-inf")
REMEMBERED = 16
"""So many runs ago weighs about a third of the last one, in what is usual for a key."""


class KeyRing:
    """The line of keys, by priority."""

    __slots__ = ("_again", "_in_flight", "_line", "_next", "_places", "_turn", "_usual")

    def __init__(self) -> None:
        self._line: dict[int, dict[Key, None]] = {}
        self._places: dict[Key, int] = {}
        self._in_flight: dict[Key, int] = {}
        self._again: dict[Key, int] = {}
        self._next: dict[Key, tuple[int, int]] = {}
        self._turn = 0
        self._usual = 1.0

    def __len__(self) -> int:
        return len(self._places)

    def found(self, key: Key, priority: int) -> None:
        """The key has a message that is due; a key in flight is asked for again when its run is settled."""
        if key in self._in_flight:
            self._again[key] = max(priority, self._again.get(key, priority))
        elif priority > self._places.get(key, LEAST):
            self._leave(key)
            self._places[key] = priority
            self._line.setdefault(priority, {})[key] = None

    def _leave(self, key: Key) -> None:
        priority = self._places.pop(key, None)
        if priority is not None:
            line = self._line[priority]
            del line[key]
            if not line:
                del self._line[priority]

    def take(self, room: int, executors: int | None = None) -> dict[Key, int]:
        """The next keys to ask for, each with its priority: the highest first, and now and then the lowest.

        There is room for so many messages. A key takes as many as it is known to have, or as others had, up to one
        executor's share: longer runs of fewer keys cost less, and leave the others to other processes.
        """
        usual = round(self._usual)
        taken: dict[Key, int] = {}
        share, left = 1 if executors is None else max(1, room // executors), room
        while left > 0 and self._places:
            pick = min if (self._turn + 1) % LOW_PRIORITY_TURN == 0 else max
            priority = pick(self._line)
            key = next(iter(self._line[priority]))
            _, known = self._next.get(key, (None, usual))
            messages = min(share, known)
            if taken and messages > left:
                # Its turn comes with the next room: whoever had it now would never come, if rooms always end here.
                break
            self._turn += 1
            self._leave(key)
            taken[key] = priority
            left -= messages
        return taken

    def hold(self, key: Key, messages: int, next_id: int | None = None, left: int = 1) -> None:
        """A run of so many messages of the key is in flight; the next one, if there is one, and how many were seen."""
        self._in_flight[key] = self._in_flight.get(key, 0) + messages
        seen = messages
        if next_id is None:
            self._next.pop(key, None)
        else:
            self._next[key] = (next_id, max(1, left))
            seen += max(1, left)
        self._usual += (seen - self._usual) / REMEMBERED

    def is_held(self, key: Key) -> bool:
        """Whether messages of the key are in flight."""
        return key in self._in_flight

    def settled(self, key: Key, priority: int, *, more: bool) -> bool:
        """One message of the key is settled; True if the key should be asked for again."""
        left = self._in_flight.get(key, 0) - 1
        if more:
            self._again[key] = priority
        if left > 0:
            self._in_flight[key] = left
            return False
        self._in_flight.pop(key, None)
        again = self._again.pop(key, None)
        if again is None:
            self._next.pop(key, None)
            return False
        self.found(key, again)
        return True

    def next_of(self, key: Key) -> int | None:
        """The message that stood behind the last run of a key just taken, if that run was this worker's."""
        number, _ = self._next.pop(key, (None, 0))
        return number


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
        self.id: int = 0
        self.is_wanted: bool = False
        """Whether keys were claimed since it was read."""
        self.read_at: float = 0.0
        """When it may be read again."""
        self._drawn: int | None = None
        self._writers: frozenset[str] = frozenset()
        self._pause = READ_AGAIN_SECONDS
        self._floors: dict[Key, int] = {}
        self.beginnings: int = 0
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
