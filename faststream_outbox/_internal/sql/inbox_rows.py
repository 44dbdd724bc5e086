"""The shapes of the inbox's rows: `Turn` of `receive`, `Kept` of `kept_response`, `Cleaned` of `clean`, `Counted` of
`consumers`, `FirstAndLast` of `first_and_last`.

`written_by`, `count_old` and `keep_response` return one column. Used by the inbox.
"""

from datetime import datetime
from typing import NamedTuple


class Turn(NamedTuple):
    """Whether this transaction may handle a message now, and its id if the receipt is new."""

    is_ours: bool
    xid: str | None


class Kept(NamedTuple):
    """What a handler answered: bytes, how to read them, and headers as JSON."""

    body: bytes
    content_type: str | None
    headers: str | None


class Cleaned(NamedTuple):
    """How many receipts of a slice went, and when the last of them was written."""

    gone: int
    reached: datetime | None


class Counted(NamedTuple):
    """How many receipts a consumer has."""

    consumer: str
    receipts: int


class FirstAndLast(NamedTuple):
    """When receipts were written."""

    first: datetime | None
    last: datetime | None


SHAPES: dict[tuple[str, str], type[Turn | Kept | Cleaned | Counted | FirstAndLast]] = {
    ("inbox", "receive"): Turn,
    ("inbox", "kept_response"): Kept,
    ("inbox", "clean"): Cleaned,
    ("inbox", "consumers"): Counted,
    ("inbox", "first_and_last"): FirstAndLast,
}
"""Which statement of which file returns which."""
