"""The account of a log: from what was committed and what a reader did to what went wrong.

Versions of a name count from 1 without a gap, in the order of their commits; so the last version of each name is
the whole truth. Pure, so that `test_log_account` can show that each kind of wrong is seen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.account import AnyAccount

Event = tuple[str, int]
"""A name and its version."""


@dataclass(frozen=True, slots=True)
class LogAccount(AnyAccount):
    """What became of everything that was committed to a log."""

    committed: int
    done: int
    parked: int
    lost: frozenset[Event]
    """Committed, and neither done nor parked."""
    ghosts: frozenset[Event]
    """Done or parked, although never committed."""
    twice: frozenset[Event]
    """Done more than once, or done and parked."""
    disordered: tuple[Event, ...]
    """Done for the first time after a later version of the same name."""


def log_account(versions: Mapping[str, int], done: Sequence[Event], parked: Iterable[Event] = ()) -> LogAccount:
    """Draw it up from the last committed version of each name, and what was done in the order of doing."""
    committed = {(name, version) for name, last in versions.items() for version in range(1, last + 1)}
    times = Counter(done)
    deferral = set(parked)
    return LogAccount(
        committed=len(committed),
        done=len(times),
        parked=len(deferral),
        lost=frozenset(committed - set(times) - deferral),
        ghosts=frozenset((set(times) | deferral) - committed),
        twice=frozenset({event for event, count in times.items() if count > 1} | (set(times) & deferral)),
        disordered=tuple(_disordered(done)),
    )


def _disordered(done: Iterable[Event]) -> Iterable[Event]:
    latest: dict[str, int] = {}
    seen: set[Event] = set()
    for name, version in done:
        if (name, version) not in seen and version < latest.get(name, 0):
            yield name, version
        seen.add((name, version))
        latest[name] = max(version, latest.get(name, 0))


def percentile(seconds: Iterable[float], percent: float) -> float:
    """So many percent are not larger."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
