"""The account of an upgrade: what became of every message while processes of two versions worked on one table.

Pure, so that `test_upgrade_account` can show that each kind of wrong is seen.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was committed."""

    n: str
    kind: str
    id: int
    due: datetime


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a handler; without an outcome if its process was killed before its end."""

    n: str
    side: str
    started: datetime
    outcome: str | None


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A lease that went from one holder to another."""

    id: int
    old_token: UUID
    old_at: datetime
    new_at: datetime


@dataclass(frozen=True, slots=True)
class UpgradeAccount:
    """Counts, and everything that must be empty."""

    sent: int
    done: int
    dead: int
    dropped: int
    """Failed for good in a process of a version that keeps no dead letters."""
    taken_over: int
    lost: frozenset[str]
    left: frozenset[str]
    ghosts: frozenset[str]
    """Handled although never committed."""
    twice: frozenset[str]
    """Done more than once although nobody took its lease over, dead more than once, or done and dead."""
    stolen: tuple[TakenOver, ...]
    """Leases taken from a holder before they had run out."""
    early: frozenset[str]
    """Begun before they were due."""

    def wrongs(self) -> dict[str, object]:
        """What went wrong, by its name."""
        named = ("lost", "left", "ghosts", "twice", "stolen", "early")
        return {name: getattr(self, name) for name in named if getattr(self, name)}


def upgrade_account(
    *,
    sent: Sequence[Sent],
    runs: Sequence[Run],
    leases: Sequence[TakenOver],
    left: Set[int],
    dead: Sequence[int],
    lease_seconds: float,
    dropping: Set[str] = frozenset(),
) -> UpgradeAccount:
    """Draw it up. `left` and `dead` are ids of rows; the sides in `dropping` keep no dead letters."""
    ids = {one.n: one.id for one in sent}
    done = Counter(run.n for run in runs if run.outcome == "done")
    buried = Counter(dead)
    moved = {change.id for change in leases}
    dropped = {n for n in _failed_last(runs, dropping) if ids.get(n) not in buried}
    dropped &= {one.n for one in sent if one.kind == "poison"}
    ended = set(done) | dropped | {n for n, row in ids.items() if row in buried or row in left}
    twice = {n for n, times in done.items() if times > 1 and ids.get(n) not in moved}
    twice |= {n for n, row in ids.items() if buried[row] > 1 or (buried[row] and n in done)}
    due = {one.n: one.due for one in sent}
    return UpgradeAccount(
        sent=len(sent),
        done=len(done),
        dead=buried.total(),
        dropped=len(dropped),
        taken_over=len(leases),
        lost=frozenset(set(ids) - ended),
        left=frozenset(n for n, row in ids.items() if row in left),
        ghosts=frozenset({run.n for run in runs} - set(ids)),
        twice=frozenset(twice),
        stolen=tuple(change for change in leases if change.new_at < change.old_at + timedelta(seconds=lease_seconds)),
        early=frozenset(run.n for run in runs if run.n in due and run.started < due[run.n]),
    )


def _failed_last(runs: Iterable[Run], sides: Set[str]) -> Iterable[str]:
    """Messages whose last run failed on one of these sides."""
    last: dict[str, Run] = {}
    by_message: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_message[run.n].append(run)
    for n, of_message in by_message.items():
        last[n] = max(of_message, key=lambda run: run.started)
    return [n for n, run in last.items() if run.side in sides and run.outcome == "failed"]
