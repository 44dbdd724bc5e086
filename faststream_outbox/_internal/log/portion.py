"""A portion: messages that were read for a member while it waited at the end of the log.

Worth something only while the member's spans stand where they stood. Made by `tail`, taken by `reader`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from faststream_outbox._internal.log.sharing.spans import Cursor, Span
from faststream_outbox._internal.sql.log_rows import ReadMessage


@dataclass(frozen=True, slots=True)
class Portion:
    """Messages that were read for a member, of spans that stand at `after`, and where those stand when it is done."""

    rows: Sequence[ReadMessage]
    spans: Sequence[Span]
    after: Cursor
    end: Cursor
    stamps: Mapping[int, datetime]
    generation: int

    def of(self, held: Mapping[int, Span]) -> list[Span] | None:
        """Its spans as they are held now; None if any of them has changed hands or moved."""
        now = [held.get(span.lo) for span in self.spans]
        found = [span for span in now if span is not None]
        is_same = len(found) == len(now) and all(
            (span.hi, span.epoch, span.cursor) == (before.hi, before.epoch, self.after)
            for span, before in zip(found, self.spans, strict=True)
        )
        return found if is_same else None

    def first(self, count: int) -> tuple["Portion", "Portion | None"]:
        """The first so many messages, and the rest."""
        if len(self.rows) <= count:
            return self, None
        last = self.rows[count - 1]
        middle = Cursor(last.tick, last.position)
        spans, stamps, generation = self.spans, self.stamps, self.generation
        return (
            Portion(self.rows[:count], spans, self.after, middle, stamps, generation),
            Portion(self.rows[count:], spans, middle, self.end, stamps, generation),
        )
