"""Whether a handler's transaction came about, as the rows that it wrote tell. Pure; asked by `settler`.

The question is put while the rows are locked, so that no transaction is under way that could still change them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from faststream_outbox._internal.log.deferral.blocked import Deferral
from faststream_outbox._internal.log.sharing.spans import Span
from faststream_outbox._internal.sql.log_rows import LockedSpan, StillDeferred
from faststream_outbox._internal.uncertain import Fate


@dataclass(frozen=True, slots=True)
class Written:
    """What a transaction wrote: cursors that it moved, or deferred messages that it ended or put off."""

    spans: Sequence[Span]
    done: tuple[int, ...] = ()
    deferrals: tuple[Deferral, ...] = ()

    @property
    def positions(self) -> list[int]:
        """The deferred messages."""
        return [*self.done, *(deferral.position for deferral in self.deferrals)]

    @property
    def values(self) -> dict[str, Any]:
        """As parameters of the question."""
        return {"los": [span.lo for span in self.spans], "positions": self.positions}


def fate_of(written: Written, me: UUID, spans: Sequence[LockedSpan], deferred: Sequence[StillDeferred]) -> Fate:
    """What became of the transaction, by how its spans stand and which of its messages are deferred."""
    if not all(row.is_free for row in spans):
        return Fate.OPEN
    rows = {row.lo: row for row in spans}
    ours = [(span, rows[span.lo]) for span in written.spans if _is_ours(span, me, rows.get(span.lo))]
    if not written.positions:
        moved = [(span, (row.tick, row.position)) for span, row in ours if span.cursor != span.known]
        if any(place == span.cursor for span, place in moved):
            return Fate.COMMITTED
        return Fate.ROLLED_BACK if any(place == span.known for span, place in moved) else Fate.UNKNOWN
    if not ours:
        return Fate.UNKNOWN
    left = {row.position: (row.state, row.attempts) for row in deferred}
    if any(position not in left for position in written.done):
        return Fate.COMMITTED
    # Only failures: nothing but their count depends on it.
    is_counted = not written.done and all(
        left.get(one.position) == (one.state, one.attempts) for one in written.deferrals
    )
    return Fate.COMMITTED if is_counted else Fate.ROLLED_BACK


def _is_ours(span: Span, me: UUID, row: LockedSpan | None) -> bool:
    return row is not None and row.epoch == span.epoch and row.owner == me
