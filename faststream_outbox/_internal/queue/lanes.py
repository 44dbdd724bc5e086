"""Lanes: how far a claimer has got in each queue and priority, and how many messages to take from each.

A claim starts its index scan at the lane's floor, so that leased rows and dead index entries below
it are not walked again and again. The floor may be too high for three reasons, each with its cure:
publishers overlap, so rows appear a little below it (after a hint it is lowered by a grace); a row is
released or its lease runs out (a scan beside the claims finds it); a transaction took very long (the
same scan finds it). A lane whose claim failed is asked alone, and for less, until it works again.
Pure: times are given. Used by `claimer` and `scanner`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from faststream_outbox._internal.poison import Narrowing
from faststream_outbox._internal.service import pause_after

BEGINNING: datetime | None = None
"""The floor below every message."""
GRACE = 1.0
"""Seconds that transactions which publish may overlap: a message appears no further below the floor by them."""
PATIENCE = 5.0
"""Seconds that a lane may be passed over for those of higher priority."""
BEFORE_ALL_IDS, AFTER_ALL_IDS = -(2**63), 2**63 - 1

NO_LIMIT = 2**31 - 1
FIRST_YEAR = 2
"""What is due before or in it may be shown as its beginning: Python has no dates before Christ and no infinity."""

NEVER = float("inf")

LOWEST = (BEGINNING, BEFORE_ALL_IDS)
"""The place of the floor that is below every message."""


def is_exact(at: datetime) -> bool:
    """Whether a due time is the row's own."""
    return at.year > FIRST_YEAR


@dataclass(slots=True, eq=False)
class Lane:
    """One queue and priority, of messages with keys or without."""

    queue: str
    priority: int
    keyed: bool
    floor_at: datetime | None = BEGINNING
    floor_id: int = BEFORE_ALL_IDS
    may_have_work: bool = True
    has_work: bool = False
    """Whether somebody has named it, or seen a message in it, since the last scan began; else it was only meant too."""
    wants_rewind: bool = False
    due_at: float = NEVER
    is_due_known: bool = False
    passed_over_since: float | None = None
    hinted_at: float = 0.0
    seen_at: datetime | None = None
    """When the last scan began that also went below the floor, on the server's clock."""
    scans_below: bool = False
    is_lowered: bool = False
    """Whether the floor was lowered since the last scan began."""
    failures: int = 0
    """Claims of this lane that failed in a row; after the first it is asked alone."""
    retry_at: float = 0.0
    _narrowing: Narrowing = field(default_factory=lambda: Narrowing(NO_LIMIT))

    @property
    def most(self) -> int:
        """How many messages to ask for at most."""
        return self._narrowing.limit

    @property
    def has_passed_all(self) -> bool:
        """Whether the last scan came to the end of what was due."""
        return self.floor_at is not None and self.floor_id == AFTER_ALL_IDS

    def hint(self, now: float, *, is_precise: bool = True, is_named: bool = True) -> None:
        """There may be new messages, also a little below the floor, and later ones unless the hint is precise.

        A hint that does not name the queue means all of them, and most have none.
        """
        self.may_have_work = self.wants_rewind = True
        self.has_work = self.has_work or is_named
        self.hinted_at = now
        if not is_precise:
            self.is_due_known = False

    def hint_due(self, now: float, at: float, *, is_precise: bool) -> None:
        """There is a new message that falls due then, and there are later ones unless the hint is precise."""
        # A scan that is under way may have passed it by, and must not forget it.
        self.hinted_at = now
        self.note_due(at)
        if not is_precise:
            self.is_due_known = False

    def ask_due(self) -> None:
        """It is being asked when its next message falls due; a hint that comes meanwhile has it asked again."""
        self.is_due_known = True

    def due_unknown(self) -> None:
        """It could not be asked."""
        self.is_due_known = False

    def note_due(self, at: float) -> None:
        """A message falls due then."""
        self.due_at = min(self.due_at, at)

    def lower(self, at: datetime, number: int) -> None:
        """Many messages can be claimed from there on."""
        # The lowest id of all is found by the next scan: there is no number below it.
        self.floor_at, self.floor_id = (at, max(BEFORE_ALL_IDS, number - 1)) if is_exact(at) else LOWEST
        self.may_have_work = self.has_work = self.is_lowered = True

    def skip(self, server_now: datetime) -> None:
        """Start from now on: what lies before is left to the scanner."""
        self.floor_at, self.floor_id, self.seen_at = server_now, AFTER_ALL_IDS, server_now

    def failed(self, quota: int, now: float, *, alone: bool) -> None:
        """A claim of so many failed: ask for less, and apart from others."""
        self._narrowing.failed(quota)
        self.failures += 1
        self.retry_at = now + pause_after(self.failures) if alone else now
        self.interrupted()

    def interrupted(self) -> None:
        """A scan failed: the next must go as far below the floor as it would have."""
        if self.scans_below:
            self.scans_below, self.wants_rewind = False, self.floor_at is not None

    def worked(self, *, quickly: bool) -> None:
        """A claim worked; the next one asks for twice as many if this one took little of its time."""
        self.failures, self.retry_at = 0, 0.0
        if quickly:
            self._narrowing.worked()

    def start(self) -> tuple[datetime | None, int]:
        """Where the next scan starts: at the floor, or below it by what may have appeared since the last such scan.

        What was not there at that scan committed after it, and so fell due at most a grace before it. In a
        backlog the floor is older than that, and nothing is walked twice.
        """
        self.is_lowered = self.has_work = False
        if self.floor_at is None:
            self.scans_below = True
        elif self.wants_rewind:
            self.wants_rewind, self.scans_below = False, True
            below = None if self.seen_at is None else self.seen_at - timedelta(seconds=GRACE)
            if below is None or below < self.floor_at:
                return below, BEFORE_ALL_IDS
        return self.floor_at, self.floor_id

    def found(self) -> None:
        """A probe has seen a message in it: the claim starts where the probe did."""
        self.interrupted()
        self.has_work = True

    def scanned(self, last: tuple[datetime, int] | None, server_now: datetime, *, full: bool) -> None:
        """A scan from the floor has ended: `last` is the last row seen, `full` if there may be more."""
        if self.scans_below:
            self.seen_at, self.scans_below = server_now, False
        if self.is_lowered:
            return
        if full and last is not None:
            # A floor at a time that is not the row's own would be above rows that follow. Those without keys are
            # leased by now, and the next claim passes them; keys are walked by the first full scan.
            self.floor_at, self.floor_id = last if self.keyed or is_exact(last[0]) else LOWEST
            self.has_work = True
            return
        # Everything due by then was seen.
        self.floor_at, self.floor_id = server_now, AFTER_ALL_IDS
        # A hint that came meanwhile asks for another scan.
        self.may_have_work = self.wants_rewind
        self.passed_over_since = None

    def awaken(self, now: float) -> None:
        """Mark what has fallen due."""
        if self.due_at <= now:
            self.due_at = NEVER
            self.is_due_known = False
            self.may_have_work = self.has_work = True


def shares(lanes: Sequence[Lane], room: int, turn: int, now: float) -> list[tuple[Lane, int]]:
    """How many messages to take from each lane, `room` in all.

    Queues get equal shares, and what does not divide goes to each in turn. Within a queue the highest
    priority goes first and takes all, but a lane that was passed over for longer than `PATIENCE`
    gets a tenth, so that old messages of low priority get through a flood of high ones.
    """
    queues: dict[str, list[Lane]] = {}
    for lane in lanes:
        queues.setdefault(lane.queue, []).append(lane)
    names = sorted(queues)
    each, rest = divmod(room, len(names)) if names else (0, 0)
    result: list[tuple[Lane, int]] = []
    for place, name in enumerate(names[turn % len(names) :] + names[: turn % len(names)] if names else []):
        quota = each + (1 if place < rest else 0)
        if quota:
            result += _by_priority(queues[name], quota, now)
    return result


def _by_priority(lanes: list[Lane], quota: int, now: float) -> list[tuple[Lane, int]]:
    late = [lane for lane in lanes if now - (lane.passed_over_since or now) > PATIENCE]
    late.sort(key=lambda lane: lane.passed_over_since or now)
    # Room for one: who waited longest takes this turn.
    first = late[0] if late and quota == 1 else max(lanes, key=lambda lane: lane.priority)
    part, left = max(1, quota // 10), quota
    result: list[tuple[Lane, int]] = []
    for lane in late:
        if lane is not first and left > part:
            result.append((lane, part))
            left -= part
    first.passed_over_since = None
    served = {id(first), *(id(lane) for lane, _ in result)}
    for lane in lanes:
        if id(lane) not in served and lane.passed_over_since is None:
            lane.passed_over_since = now
        elif id(lane) in served and lane is not first and len(result) < len(late):
            # Not all who waited found a place: the others go first next time.
            lane.passed_over_since = now
    return [(first, left), *result]


def begun(lanes: Sequence[Lane]) -> dict[str, Any]:
    """Begin a scan of these lanes: values of its statement, which says where each starts."""
    starts = [lane.start() for lane in lanes]
    return {
        "queues": [lane.queue for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
        "floor_ats": [at for at, _ in starts],
        "floor_ids": [number for _, number in starts],
    }
