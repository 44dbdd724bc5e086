"""Whether a handler's transaction came about, as the rows that it wrote tell. Pure; asked by `settling`.

The question is put while the rows are locked, so that no transaction is under way that could still change them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from faststream_outbox.log.blocked import Aside
from faststream_outbox.log.spans import Span
from faststream_outbox.uncertain import Fate


@dataclass(frozen=True, slots=True)
class Written:
    """What a transaction wrote: cursors that it moved, or messages set aside that it ended or put off."""

    spans: Sequence[Span]
    done: tuple[int, ...] = ()
    asides: tuple[Aside, ...] = ()

    @property
    def positions(self) -> list[int]:
        """The messages set aside."""
        return [*self.done, *(aside.position for aside in self.asides)]

    @property
    def values(self) -> dict[str, Any]:
        """As parameters of the question."""
        return {"los": [span.lo for span in self.spans], "positions": self.positions}


def fate_of(written: Written, me: UUID, standing: Sequence[Any], aside: Sequence[Any]) -> Fate:
    """What became of the transaction, by how its spans stand and which of its messages are set aside."""
    if not all(row[5] for row in standing):
        return Fate.OPEN
    rows = {row[0]: row for row in standing}
    ours = [(span, rows[span.lo]) for span in written.spans if _is_ours(span, me, rows.get(span.lo))]
    if not written.positions:
        moved = [(span, row[1:3]) for span, row in ours if span.cursor != span.known]
        if any(tuple(place) == span.cursor for span, place in moved):
            return Fate.COMMITTED
        return Fate.ROLLED_BACK if any(tuple(place) == span.known for span, place in moved) else Fate.UNKNOWN
    if not ours:
        return Fate.UNKNOWN
    left = {row[0]: (row[1], row[2]) for row in aside}
    if any(position not in left for position in written.done):
        return Fate.COMMITTED
    # Only failures: nothing but their count depends on it.
    is_counted = not written.done and all(left.get(one.position) == (one.state, one.attempts) for one in written.asides)
    return Fate.COMMITTED if is_counted else Fate.ROLLED_BACK


def _is_ours(span: Span, me: UUID, row: Any) -> bool:
    return row is not None and row[3] == span.epoch and row[4] == me
