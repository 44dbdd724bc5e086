"""How long each role takes to work again: from the end of a fault to the next message that it finishes. Pure.

Where nothing heals, as after a kill, it counts from the strike. Of a producer, a commit is what it finishes.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from tests.faults.log_account import percentile
from tests.faults.machine.history import COMMITTED, FINISHED
from tests.faults.machine.runs import Story


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one kind of fault: how often it struck, and seconds by role."""

    kind: str
    count: int
    seconds: dict[str, list[float]]

    def half(self, role: str) -> float | None:
        """Half of the recoveries took no longer."""
        return percentile(self.seconds[role], 50) if self.seconds.get(role) else None

    def longest(self, role: str) -> float | None:
        return max(self.seconds[role]) if self.seconds.get(role) else None


def recoveries(story: Story) -> list[Recovery]:
    """One for each kind of fault, by name."""
    worked: dict[str, list[float]] = defaultdict(list)
    for event in story.events:
        if event.kind in (COMMITTED, FINISHED):
            worked[event.role].append(event.seconds)
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for fault in story.faults:
        counts[fault.kind] += 1
        since = fault.struck if fault.healed is None else fault.healed
        for role, times in worked.items():
            place = bisect_right(times, since)
            if place < len(times):
                seconds[fault.kind][role].append(times[place] - since)
    return [Recovery(kind, counts[kind], dict(seconds[kind])) for kind in sorted(counts)]
