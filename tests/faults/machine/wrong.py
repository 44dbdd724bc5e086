"""What went wrong: a promise that was not kept, of which message, and the events that show it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.faults.machine.history import Event

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Wrong:
    """One broken promise."""

    kind: str
    message: str
    """The id of the message, or what else it is about."""
    detail: str
    events: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}: {self.detail}", *(f"    {event}" for event in self.events)]
        return "\n".join(lines)


def wrong(kind: str, message: str, detail: str, events: Iterable[Event] = ()) -> Wrong:
    """With the first events that show it."""
    shown: Sequence[Event] = list(events)
    return Wrong(kind, message, detail, tuple(map(str, shown[:MOST_SHOWN])))
