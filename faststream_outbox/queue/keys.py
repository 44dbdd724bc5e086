"""Keys that may have messages to claim, each in its turn, and the keys that are in hand.

At most one run of a key is in hand in this process; the claim itself sees to it across processes. A
key whose run is settled goes to the back of the line, so that a deep key does not starve the others.
Pure. Used by `claimer`.
"""

Key = tuple[str, str]
"""Queue and key."""

LOW_PRIORITY_TURN = 10
NEVER = float("-inf")


class KeyRing:
    """The line of keys, by priority."""

    __slots__ = ("_again", "_in_hand", "_line", "_next", "_places", "_turn")

    def __init__(self) -> None:
        self._line: dict[int, dict[Key, None]] = {}
        self._places: dict[Key, int] = {}
        self._in_hand: dict[Key, int] = {}
        self._again: dict[Key, int] = {}
        self._next: dict[Key, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._places)

    def found(self, key: Key, priority: int) -> None:
        """The key has a message that is due; one that is in hand is looked at again when it is settled."""
        if key in self._in_hand:
            self._again[key] = max(priority, self._again.get(key, priority))
        elif priority > self._places.get(key, NEVER):
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

    def take(self, count: int) -> dict[Key, int]:
        """The next keys to ask for, each with its priority: the highest first, and now and then the lowest."""
        taken: dict[Key, int] = {}
        while len(taken) < count and self._places:
            self._turn += 1
            pick = min if self._turn % LOW_PRIORITY_TURN == 0 else max
            priority = pick(self._line)
            key = next(iter(self._line[priority]))
            self._leave(key)
            taken[key] = priority
        return taken

    def hold(self, key: Key, messages: int, next_id: int | None = None) -> None:
        """A run of so many messages of the key is in hand, and this is the id of the next one, if there is one."""
        self._in_hand[key] = self._in_hand.get(key, 0) + messages
        if next_id is None:
            self._next.pop(key, None)
        else:
            self._next[key] = next_id

    def is_held(self, key: Key) -> bool:
        """Whether messages of the key are in hand."""
        return key in self._in_hand

    def settled(self, key: Key, priority: int, *, more: bool) -> bool:
        """One message of the key left our hand; True if the key should be asked for again."""
        left = self._in_hand.get(key, 0) - 1
        if more:
            self._again[key] = priority
        if left > 0:
            self._in_hand[key] = left
            return False
        self._in_hand.pop(key, None)
        again = self._again.pop(key, None)
        if again is None:
            self._next.pop(key, None)
            return False
        self.found(key, again)
        return True

    def next_of(self, key: Key) -> int | None:
        """The message that stood behind the last run of a key just taken, if that run was in our hand."""
        return self._next.pop(key, None)
