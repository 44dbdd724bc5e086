"""Finding the one item that makes whatever it is part of fail.

Many items are asked for at once, and one of them may be what fails. `Narrowing` says how many to ask for: fewer after a
failure, until that one is alone, and more again once they come. `Strikes` counts what failed alone, and says when it
has failed so often and for so long that it is to blame, and not a moment in which everything failed. Bookkeeping on
given times: nothing is asked here, and nothing set apart. Used by both engines, for messages that cannot be claimed,
read or settled, and for claims and probes that are too large.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_ITEMS = 1000


class Strikes(Generic[K]):
    """Failures of single items, each known by what does not change of it."""

    __slots__ = ("_failures", "_most")

    def __init__(self, most: int = MOST_ITEMS) -> None:
        """most: items that are kept in mind; beyond that the oldest is forgotten."""
        self._most = most
        self._failures: dict[K, tuple[float, int]] = {}

    def __bool__(self) -> bool:
        """Whether there are any: nobody pays who has none."""
        return bool(self._failures)

    def failed(self, item: K, now: float, *, times: int, seconds: float) -> bool:
        """It failed alone; whether that has happened so often, and began so long ago, that it is to blame.

        Both count: a server that stumbles fails many times within a moment, and a slow one seldom for a long time.
        """
        since, failures = self._failures.get(item, (now, 0))
        self._failures[item] = (since, failures + 1)
        if len(self._failures) > self._most:
            del self._failures[next(iter(self._failures))]
        return failures + 1 >= times and now - since >= seconds

    def forget(self, items: Iterable[K]) -> None:
        """These could be fetched, or are set apart: what fails from now on counts from the beginning."""
        if self._failures:
            for item in items:
                self._failures.pop(item, None)


class Narrowing:
    """How many items to ask for at once."""

    __slots__ = ("_least", "_most", "_part", "limit")

    def __init__(self, most: int, *, least: int = 1, part: int = 2) -> None:
        """part: what is left after a failure is one of so many."""
        self._most = most
        self._least = least
        self._part = part
        self.limit = most
        """Read by whoever asks; fewer after a failure, more again after what was quick."""

    def failed(self, asked: int) -> None:
        """So many were asked for, in vain."""
        self.limit = max(self._least, min(asked, self.limit) // self._part)

    def worked(self) -> None:
        """They came, and twice as many could have."""
        self.limit = min(self._most, 2 * self.limit)

    def reset(self) -> None:
        """What it was learned from is over."""
        self.limit = self._most
