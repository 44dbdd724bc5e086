"""A batch: messages in flight, and what became of them until it is written. Made by readers, filled by `executor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from faststream_outbox._internal.log.deferral.blocked import Deferral
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.sharing.spans import Cursor, Span
from faststream_outbox._internal.outcomes.outcome import Outcome

Ended = tuple[Delivery, Outcome, float]
"""A message, what became of it, and how long that took."""


@dataclass(slots=True)
class Batch:
    """Messages in flight, the spans that they belong to, and where those stand when all of it is done."""

    deliveries: list[Delivery]
    spans: list[Span]
    end: Cursor
    stamps: Mapping[int, datetime] = field(default_factory=dict)
    """When the ticks of these messages were made."""
    is_deferred: bool = False
    """Whether these were deferred before."""
    deferrals: list[Deferral] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    halts: dict[int, Cursor] = field(default_factory=dict)
    """Slots that must not go on, and where they stop."""
    ended: list[Ended] = field(default_factory=list)
    """What became of which, to be reported once it is written."""
    passed: int = 0
    """How many were deferred because another one of their key waits."""

    @property
    def stopped(self) -> int:
        """How many were left where they are, because their slot must not go on."""
        return sum(each.cursor > self.halts[each.slot] for each in self.deliveries if each.slot in self.halts)

    def forget(self) -> None:
        """It is written, or rolled back."""
        self.deferrals, self.done, self.ended = [], [], []
