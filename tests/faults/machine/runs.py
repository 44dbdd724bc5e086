"""The history in order: runs of handlers put together from their two events, and faults from theirs. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.faults.machine.history import (
    BEGUN,
    COMMITTED,
    FINISHED,
    HEALED,
    ROLLED_BACK,
    STARTED,
    STRUCK,
    UNCERTAIN,
    Event,
)

FINAL = ("done", "dead")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler; without an end if its process died first."""

    id: str
    place: str
    key: str | None
    version: int | None
    attempt: int
    token: str | None
    start: Event
    end: Event | None

    @property
    def outcome(self) -> str | None:
        return None if self.end is None else str(self.end.data["outcome"])

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.start,) if self.end is None else (self.start, self.end)


@dataclass(frozen=True, slots=True)
class Fault:
    """From the strike to the healing, in seconds; without an end where nothing heals."""

    kind: str
    detail: str
    struck: float
    healed: float | None
    rows: frozenset[int] = frozenset()
    """Of the outbox, where it is about some alone."""


@dataclass(slots=True)
class Story:
    """A history by what it tells."""

    events: Sequence[Event]
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    told: dict[str, tuple[str, Event]] = field(default_factory=dict)
    """The last that a producer said of each message: begun, committed, uncertain or rolled back."""
    by_pid: dict[int, list[Event]] = field(default_factory=dict)
    by_message: dict[str, list[Run]] = field(default_factory=dict)
    pooled: set[int] = field(default_factory=set)
    """Processes behind the pooler."""

    def of_message(self, message: str) -> list[Event]:
        """Events of one message."""
        found = [event for run in self.by_message.get(message, ()) for event in run.events]
        if message in self.told:
            found.append(self.told[message][1])
        return sorted(found, key=lambda event: event.at)


def tell(events: Iterable[Event]) -> Story:
    """Put a history in order."""
    story = Story(sorted(events, key=lambda event: event.at))
    open_runs: dict[tuple[int, int], Event] = {}
    open_faults: dict[str, list[Event]] = defaultdict(list)
    by_pid: dict[int, list[Event]] = defaultdict(list)
    ends: dict[tuple[int, int], Event] = {}
    starts: list[Event] = []
    for event in story.events:
        by_pid[event.pid].append(event)
        match event.kind:
            case "born":
                # The number of a process may come again: runs of the one before it have no end.
                for place in [place for place in open_runs if place[0] == event.pid]:
                    del open_runs[place]
                (story.pooled.add if event.data.get("pooled") else story.pooled.discard)(event.pid)
            case _ if event.kind == STARTED:
                starts.append(event)
                open_runs[event.pid, event.data["run"]] = event
            case _ if event.kind == FINISHED:
                if (start := open_runs.pop((event.pid, event.data["run"]), None)) is not None:
                    ends[start.pid, start.at] = event
            case _ if event.kind == STRUCK:
                open_faults[event.data["fault"]].append(event)
            case _ if event.kind == HEALED:
                if waiting := open_faults[event.data["fault"]]:
                    story.faults.append(_fault(waiting.pop(0), event))
            case _ if event.kind in (BEGUN, COMMITTED, UNCERTAIN, ROLLED_BACK):
                for message in event.data["ids"]:
                    story.told[message] = (event.kind, event)
    story.faults += [_fault(event, None) for waiting in open_faults.values() for event in waiting]
    story.faults.sort(key=lambda fault: fault.struck)
    story.runs = [_run(start, ends.get((start.pid, start.at))) for start in starts]
    for run in story.runs:
        story.by_message.setdefault(run.id, []).append(run)
    story.by_pid = dict(by_pid)
    return story


def _fault(struck: Event, healed: Event | None) -> Fault:
    until = None if healed is None else healed.seconds
    rows = frozenset(struck.data.get("rows", ()))
    return Fault(struck.data["fault"], struck.data.get("detail", ""), struck.seconds, until, rows)


def _run(start: Event, end: Event | None) -> Run:
    data = start.data
    return Run(data["id"], data["place"], data["key"], data["version"], data["attempt"], data.get("token"), start, end)


def awake(story: Story, pid: int, since: float, until: float) -> float:
    """The longest time between two events of a process, from `since` to `until`."""
    times = [event.seconds for event in story.by_pid.get(pid, ()) if since <= event.seconds <= until]
    marks = [since, *times, until]
    return max(after - before for before, after in pairwise(marks))
