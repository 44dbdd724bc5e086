"""What is wanted of the log: URIs to read by, each with its slots.

A set of slots is the bits of one number, so that members of a process add up cheaply. Pure functions. Used by
`reader`, for what one member wants, and by `tail`, for what all that wait want together.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from faststream_outbox._internal.log.sharing.slots import prefix_of
from faststream_outbox._internal.log.sharing.spans import Slots, Span


def slots_of(spans: Iterable[Span]) -> int:
    """The slots of some spans."""
    slots = 0
    for span in spans:
        slots |= (1 << span.hi + 1) - (1 << span.lo)
    return slots


def runs(slots: int) -> Iterator[Slots]:
    """Neighbouring slots, as the first and the last of each run."""
    lo = 0
    while slots:
        skipped = (slots & -slots).bit_length() - 1
        slots >>= skipped
        lo += skipped
        size = (~slots & (slots + 1)).bit_length() - 1
        yield lo, lo + size - 1
        slots >>= size
        lo += size


def as_filters(wanted: Mapping[str, int]) -> dict[str, Any]:
    """URIs and their slots as parameters of `fetch`."""
    found = [(uri, lo, hi) for uri, slots in wanted.items() for lo, hi in runs(slots)]
    return {
        "uris": [uri for uri, _, _ in found],
        "prefixes": [prefix_of(uri) for uri, _, _ in found],
        "first_slots": [lo for _, lo, _ in found],
        "last_slots": [hi for _, _, hi in found],
    }


def filters_of(uri: str) -> set[str]:
    """Whatever may be read by to get a message of this URI."""
    found = {"", uri}
    for place, sign in enumerate(uri):
        if sign == "/":
            found.add(uri[: place + 1])
            found.add(uri[:place])
    return found
