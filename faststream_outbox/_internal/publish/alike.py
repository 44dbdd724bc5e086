"""Messages that differ in their bodies alone: one row for all of them, and the bodies.

A thousand rows would be a thousand tuples to make, to take apart again and, for the garbage collector, to
visit. Reads like the rows that it stands for. Made by the broker for `publish_batch`, taken by `publish`.
"""

from collections.abc import Sequence
from typing import overload

from faststream_outbox._internal.envelope import CheckedEnvelope, checked_body, size_of


class Alike(Sequence[CheckedEnvelope]):
    """Rows of which all but the payload is that of `row`, which has no timer and no id."""

    __slots__ = ("payloads", "row")

    def __init__(self, row: CheckedEnvelope, payloads: list[bytes]) -> None:
        self.row = row
        self.payloads = payloads

    @classmethod
    def of(cls, row: CheckedEnvelope, bodies: Sequence[object]) -> "Alike":
        """The row with each of the bodies, which are checked."""
        return cls(row, [checked_body(body) for body in bodies])

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, place: int) -> CheckedEnvelope: ...

    @overload
    def __getitem__(self, place: slice) -> "Alike": ...

    def __getitem__(self, place: int | slice) -> "CheckedEnvelope | Alike":
        if isinstance(place, slice):
            return Alike(self.row, self.payloads[place])
        return self.row.with_content(self.payloads[place], self.row.headers)

    def sizes(self) -> list[int]:
        """The bytes of each message."""
        headers = size_of(self.row.headers or "")
        return [headers + size for size in map(len, self.payloads)]
