"""What came of messages that were relayed while things broke: what is missing, what is out of order, what came twice.

A pure comparison of what was published with what has arrived; a copy that came again is explained by who sent the one
before it. Used by the fault tests, which ask that nothing is missing and all is in order.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

Number = tuple[str, int]
"""Where a message was published, and its number there."""
KILLED = "its relay was killed before it had written that down"
UNCONFIRMED = "the broker went away before it had confirmed"
TAKEN_OVER = "the broker went away, and another relay took it over"


class Arrived(NamedTuple):
    """A message at the far end: its id, its body, and the process that sent it if that is known."""

    id: str
    body: dict[str, Any]
    sender: str | None = None

    @property
    def number(self) -> Number:
        return str(self.body["source"]), int(self.body["n"])


@dataclass(frozen=True, slots=True)
class Account:
    """The comparison."""

    lost: set[Number]
    unknown: set[Number]
    again: Counter[str]
    broken: dict[tuple[str, str], list[int]]
    """Numbers by source and key, without those that came again, where they are out of order."""

    def __str__(self) -> str:
        why = "; ".join(f"{count} as {reason}" for reason, count in self.again.most_common())
        again = f"{self.again.total()} again" + (f" ({why})" if why else "")
        return f"{len(self.lost)} lost, {len(self.broken)} keys out of order, {again}"


def account(published: Collection[Number], arrived: Iterable[Arrived], killed: Collection[str]) -> Account:
    """Compare what was published with what has arrived, in order; `killed` are processes."""
    again: Counter[str] = Counter()
    before: dict[str, str | None] = {}
    by_key: dict[tuple[str, str], list[int]] = {}
    found: set[Number] = set()
    for each in arrived:
        if each.id in before:
            again[_why(before[each.id], each.sender, killed)] += 1
        else:
            found.add(each.number)
            by_key.setdefault((each.number[0], each.body["key"]), []).append(each.number[1])
        before[each.id] = each.sender
    broken = {key: numbers for key, numbers in by_key.items() if numbers != sorted(set(numbers))}
    return Account(set(published) - found, found - set(published), again, broken)


def _why(before: str | None, now: str | None, killed: Collection[str]) -> str:
    if before == now:
        return UNCONFIRMED
    return KILLED if before in killed else TAKEN_OVER
