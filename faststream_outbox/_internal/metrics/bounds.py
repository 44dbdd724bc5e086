"""How many values a label may have: what others can write must not become a series for each of them.

A queue, a reason, the type of an error or the source of a message may come from outside. The first so many values of a
label are kept as they are; whatever else comes is counted under `other`. Used by the recorders.
"""

from collections import defaultdict

MOST_VALUES = 200
"""Of one label, in one recorder."""
OTHER = "other"


class Bounds:
    """Which values each label has had."""

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: defaultdict[str, set[str]] = defaultdict(set)

    def bounded(self, label: str, value: str) -> str:
        """The value, or `other` if the label has had too many."""
        seen = self._seen[label]
        if value not in seen:
            if len(seen) >= self._most:
                return OTHER
            seen.add(value)
        return value
