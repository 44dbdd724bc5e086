"""What a fault may have kept from happening: it excuses that, for as long as it can, and nothing else.

A kind of fault that is not named here excuses nothing. What a process does not do because it does not run, is seen in
its own history. Pure; asked by `leases` and `ends`, which say what is to be excused.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.machine.runs import Fault, Story
from tests.faults.machine.world import OUTBOX

AGAIN_SECONDS = 3.0
"""After this time whoever lost its connection has another one, and has used it: a statement is given up after a third
of a lease, and opening takes as long at most."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a kind of fault can touch."""

    lasts: float = AGAIN_SECONDS
    """Seconds after its end."""
    on_table: bool = False
    """Only who wants the table that its detail names."""
    on_rows: bool = False
    """Only who wants one of its rows."""
    behind_pooler: bool = False
    """Only processes behind the pooler."""


_EVERYBODY = Reach()
_ON_TABLE = Reach(on_table=True)
OF_THE_DATABASE: dict[str, Reach] = {
    "connections cut": _EVERYBODY,
    "connections half-closed": _EVERYBODY,
    "answers lost": _EVERYBODY,
    "requests lost": _EVERYBODY,
    "answers to COMMIT lost": _EVERYBODY,
    "line late": _EVERYBODY,
    "line slow": _EVERYBODY,
    "line silent": _EVERYBODY,
    "PostgreSQL restarted (fast)": _EVERYBODY,
    "PostgreSQL restarted (immediate)": _EVERYBODY,
    "PostgreSQL restarted (sigquit)": _EVERYBODY,
    "PostgreSQL backend killed": _EVERYBODY,
    "failover": _EVERYBODY,
    "sessions ended (all)": _EVERYBODY,
    "sessions ended (one)": _EVERYBODY,
    "connections used up": _EVERYBODY,
    "disk full": _EVERYBODY,
    "PgBouncer restarted": Reach(behind_pooler=True),
    "rows locked": Reach(on_rows=True),
    "table locked (share)": _ON_TABLE,
    "table locked (access exclusive)": _ON_TABLE,
    "vacuum full": _ON_TABLE,
    "reindex table concurrently": _ON_TABLE,
}
"""What may keep a lease from being renewed."""
OF_NATS = ("NATS restarted", "NATS cut")


def end_of(fault: Fault, lasts: float) -> float:
    """Until when it may be felt."""
    return (fault.struck if fault.healed is None else fault.healed) + lasts


def renewal_may_have_failed(story: Story, *, pid: int, row: int, since: float, until: float) -> bool:
    """Whether something broke the renewal of a message's lease in this time."""
    return any(_hits(story, fault, pid, row) for fault in _felt(story, since, until))


def start_may_have_failed(story: Story, since: float, until: float) -> bool:
    """Whether something kept a process from starting in this time."""
    return any(_felt(story, since, until)) or any(
        fault.struck <= until and end_of(fault, AGAIN_SECONDS) >= since
        for fault in story.faults
        if fault.kind in OF_NATS
    )


def _felt(story: Story, since: float, until: float) -> Iterator[Fault]:
    for fault in story.faults:
        reach = OF_THE_DATABASE.get(fault.kind)
        if reach is not None and fault.struck <= until and end_of(fault, reach.lasts) >= since:
            yield fault


def _hits(story: Story, fault: Fault, pid: int, row: int) -> bool:
    reach = OF_THE_DATABASE[fault.kind]
    if reach.on_table:
        return fault.detail == OUTBOX
    if reach.on_rows:
        return row in fault.rows
    return not reach.behind_pooler or pid in story.pooled
