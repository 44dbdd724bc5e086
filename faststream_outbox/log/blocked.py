"""Keys that wait: a message that failed, and those of its key behind it.

A failure blocks its key and nothing else. Whether a key is blocked is known in memory while its slot is
held, because only the holder of a slot puts messages aside; it is read anew whenever slots change hands
or an operator has changed something. On the happy path this costs nothing. Used by `reader`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream_outbox.log.spans import Span
from faststream_outbox.outcomes.failure import Failure, described

RETRY = "retry"
DEFERRED = "deferred"
PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Aside:
    """A message to set aside: where it is, why, and when it is due."""

    position: int
    tick: int
    slot: int
    key: str
    state: str
    attempts: int = 0
    delay: float = 0.0
    failure: Failure = field(default_factory=lambda: described(None))


@dataclass(slots=True)
class Waiting:
    """A blocked key: its slot, how many wait, and when its first is due; None is not before an operator says so."""

    slot: int
    count: int
    due_at: float | None


class Blocked:
    """The blocked keys of what a member holds. Times are the event loop's."""

    def __init__(self, *, hold: bool, most: int) -> None:
        self.hold = hold
        """Whether a parked message blocks its key."""
        self.most = most
        """How many may wait behind one message before its slot stops."""
        self.keys: dict[str, Waiting] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def load(self, rows: Iterable[Sequence[Any]], now: float) -> None:
        """Take what the database knows of the slots held."""
        self.keys = {
            key: Waiting(slot, count, None if state == PARKED else now + max(0.0, due or 0.0))
            for key, slot, state, due, count in rows
        }

    def put(self, aside: Aside, now: float) -> None:
        """A message of the key was set aside."""
        if aside.state == PARKED and not self.hold:
            return
        due = None if aside.state == PARKED else now + aside.delay
        known = self.keys.get(aside.key)
        if known is None:
            self.keys[aside.key] = Waiting(aside.slot, 1, due)
        else:
            known.count += 1

    def waiting(self, key: str) -> int:
        """How many wait under this key."""
        known = self.keys.get(key)
        return 0 if known is None else known.count

    def due(self, now: float) -> list[str]:
        """Keys whose first message may run."""
        return [key for key, waiting in self.keys.items() if waiting.due_at is not None and waiting.due_at <= now]

    def next_due(self) -> float | None:
        """When the next key falls due."""
        return min((waiting.due_at for waiting in self.keys.values() if waiting.due_at is not None), default=None)

    def halted(self) -> set[int]:
        """Slots that are stopped."""
        return {waiting.slot for waiting in self.keys.values() if waiting.count >= self.most}


def as_columns(asides: Sequence[Aside]) -> dict[str, Any]:
    """Messages to set aside, as parameters of `advance`."""
    return {
        "aside_positions": [aside.position for aside in asides],
        "aside_ticks": [aside.tick for aside in asides],
        "aside_slots": [aside.slot for aside in asides],
        "aside_keys": [aside.key for aside in asides],
        "aside_states": [aside.state for aside in asides],
        "aside_attempts": [aside.attempts for aside in asides],
        "aside_delays": [aside.delay for aside in asides],
        "aside_types": [aside.failure.error_type for aside in asides],
        "aside_messages": [aside.failure.error_message for aside in asides],
        "aside_tracebacks": [aside.failure.traceback for aside in asides],
    }


def as_changes(asides: Sequence[Aside], done: Sequence[int]) -> dict[str, Any]:
    """Messages that were set aside before, as parameters of `settle_aside`."""
    return {
        "done": list(done),
        "positions": [aside.position for aside in asides],
        "states": [aside.state for aside in asides],
        "attempts": [aside.attempts for aside in asides],
        "delays": [aside.delay for aside in asides],
        "types": [aside.failure.error_type for aside in asides],
        "messages": [aside.failure.error_message for aside in asides],
        "tracebacks": [aside.failure.traceback for aside in asides],
    }


def slots_of(spans: Iterable[Span]) -> dict[str, Any]:
    """Spans as parameters of `blocked`."""
    held = list(spans)
    return {"los": [span.lo for span in held], "his": [span.hi for span in held]}
