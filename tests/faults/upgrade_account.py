"""The account of an upgrade: what became of every message while processes of two versions worked on one table.

Pure, so that `test_upgrade_account` can show that each kind of wrong is seen.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields
from datetime import datetime

from tests.faults.account import Account, LeaseChange, Run, account


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was committed."""

    n: str
    kind: str
    id: int
    due: datetime


@dataclass(frozen=True, slots=True)
class SideRun(Run):
    """A run of a handler of one of the versions."""

    side: str


@dataclass(frozen=True, slots=True)
class UpgradeAccount(Account):
    """What became of everything that was sent."""

    dropped: int
    """Failed for good in a process of a version that keeps no dead letters."""
    again: frozenset[str]
    """Done more than once although nobody took its lease over."""
    early: frozenset[str]
    """Begun before they were due."""


def upgrade_account(
    *,
    sent: Sequence[Sent],
    runs: Sequence[SideRun],
    leases: Sequence[LeaseChange],
    left: Set[int],
    dead: Sequence[int],
    lease_seconds: float,
    dropping: Set[str] = frozenset(),
) -> UpgradeAccount:
    """Draw it up. `left` and `dead` are ids of rows; the sides in `dropping` keep no dead letters."""
    ids, due = {one.n: one.id for one in sent}, {one.n: one.due for one in sent}
    names = {row: n for n, row in ids.items()}
    drawn = account(
        committed=set(ids),
        left={names[row] for row in left},
        dead=[names[row] for row in dead],
        effects={},
        with_effects=set(),
        runs=runs,
        leases=leases,
        lease_seconds=lease_seconds,
    )
    dropped = _failed_last(runs, dropping) & drawn.lost & {one.n for one in sent if one.kind == "poison"}
    done = Counter(run.message_id for run in runs if run.outcome == "done")
    moved = {names.get(change.id) for change in leases}
    # Where a lease ran out on a busy machine, two runs overlap: it is not stolen.
    values = {field.name: getattr(drawn, field.name) for field in fields(drawn)} | {"overlapping": ()}
    return UpgradeAccount(
        **{**values, "lost": drawn.lost - dropped},
        dropped=len(dropped),
        again=frozenset(n for n, times in done.items() if times > 1 and n not in moved),
        early=frozenset(run.message_id for run in runs if run.message_id in due and run.started < due[run.message_id]),
    )


def _failed_last(runs: Iterable[SideRun], sides: Set[str]) -> set[str]:
    """Messages whose last run failed on one of these sides."""
    last = {run.message_id: run for run in sorted(runs, key=lambda run: run.started)}
    return {n for n, run in last.items() if run.side in sides and run.outcome == "failed"}
