"""Keys that wait: a message that failed, and those of its key behind it.

A failure blocks its key and nothing else. Whether a key is blocked is known in memory while its slot is
held, because only the holder of a slot defers messages; it is read anew whenever slots change hands
or an operator has changed something. On the happy path this costs nothing. Kept by each `member`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream_outbox._internal.log.sharing.spans import Span
from faststream_outbox._internal.outcomes.failure import Failure, described
from faststream_outbox._internal.sql.log_rows import BlockedKey

RETRY = "retry"
DEFERRED = "deferred"
PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Deferral:
    """A message to defer: where it is, why, and when it is due."""

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

    def load(self, rows: Iterable[BlockedKey], now: float) -> None:
        """Take what the database knows of the slots held."""
        self.keys = {
            row.key: Waiting(row.slot, row.waiting, None if row.state == PARKED else now + max(0.0, row.due_in or 0.0))
            for row in rows
        }

    def put(self, deferral: Deferral, now: float) -> None:
        """A message of the key was deferred."""
        if deferral.state == PARKED and not self.hold:
            return
        due = None if deferral.state == PARKED else now + deferral.delay
        known = self.keys.get(deferral.key)
        if known is None:
            self.keys[deferral.key] = Waiting(deferral.slot, 1, due)
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


def as_columns(deferrals: Sequence[Deferral]) -> dict[str, Any]:
    """Messages to defer, as parameters of `advance`."""
    return {
        "deferred_positions": [deferral.position for deferral in deferrals],
        "deferred_ticks": [deferral.tick for deferral in deferrals],
        "deferred_slots": [deferral.slot for deferral in deferrals],
        "deferred_keys": [deferral.key for deferral in deferrals],
        "deferred_states": [deferral.state for deferral in deferrals],
        "deferred_attempts": [deferral.attempts for deferral in deferrals],
        "deferred_delays": [deferral.delay for deferral in deferrals],
        "deferred_types": [deferral.failure.error_type for deferral in deferrals],
        "deferred_messages": [deferral.failure.error_message for deferral in deferrals],
        "deferred_tracebacks": [deferral.failure.traceback for deferral in deferrals],
    }


def as_changes(deferrals: Sequence[Deferral], done: Sequence[int]) -> dict[str, Any]:
    """Messages that were deferred before, as parameters of `settle_deferred`."""
    return {
        "done": list(done),
        "positions": [deferral.position for deferral in deferrals],
        "states": [deferral.state for deferral in deferrals],
        "attempts": [deferral.attempts for deferral in deferrals],
        "delays": [deferral.delay for deferral in deferrals],
        "types": [deferral.failure.error_type for deferral in deferrals],
        "messages": [deferral.failure.error_message for deferral in deferrals],
        "tracebacks": [deferral.failure.traceback for deferral in deferrals],
    }


def slots_of(spans: Iterable[Span]) -> dict[str, Any]:
    """Spans as parameters of `blocked`."""
    held = list(spans)
    return {"los": [span.lo for span in held], "his": [span.hi for span in held]}
