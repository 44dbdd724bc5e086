"""Groups and the URIs that they read by, slots, spans of them, and who should hold which. Pure functions.

A slot is one of 256 virtual partitions, fixed for ever by an unsigned hash of the full URI that is the same in Python
and in SQL: `get_byte(decode(md5(convert_to(uri, 'UTF8')), 'hex'), 7)`. A topic with a key is a URI too:
`orders/order-1`. What is wanted of the log are URIs to read by, each with its slots: the bits of one number, so that
members of a process add up cheaply.

A span is a run of neighbouring slots with one cursor and one lease. A group begins as one span of all slots. Members
cut spans to share them and join neighbours that have come equally far, so there are about as many rows as members,
however many slots. This decides, and `leases` carries out. There is no leader: every member decides for itself, and
epochs keep it safe.

Used by publishing, by reading, by the broker and by whatever operators ask.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from hashlib import md5
from typing import Any, NamedTuple
from uuid import UUID

from faststream_outbox._internal.envelope import checked_text
from faststream_outbox._internal.options import is_encodable
from faststream_outbox._internal.schema.log_tables import LAST_SLOT, URI_LENGTH
from faststream_outbox.errors import InvalidMessage

SLOTS = LAST_SLOT + 1


@dataclass(frozen=True, slots=True)
class Group:
    """Who reads what: a consumer group and the URI that it reads by."""

    name: str
    uri: str = ""

    @property
    def values(self) -> dict[str, Any]:
        """As parameters."""
        return {"group": self.name, "uri": self.uri}

    @property
    def digest(self) -> str:
        """What it is called by in wake-ups, whatever its name has in it."""
        return md5(f"{self.name}\x1f{self.uri}".encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=65536)
def slot_of(uri: str) -> int:
    """The slot of a URI."""
    given: object = uri
    if not isinstance(given, str) or not is_encodable(given):
        msg = f"uri must be a str without lone surrogates, not {given!r}."
        raise InvalidMessage(msg)
    return md5(uri.encode(), usedforsecurity=False).digest()[7]


def checked_uri(value: object, what: str = "uri") -> str:
    """`value` as a URI that PostgreSQL can store and index."""
    return _within(checked_text(value, what, length=URI_LENGTH), what, URI_LENGTH)


def checked_filter(value: object) -> str:
    """`value` as a URI to read by; empty is every URI."""
    return "" if value == "" else checked_uri(value)


def checked_group(value: object) -> str:
    """`value` as the name of a consumer group; empty is a name too."""
    return "" if value == "" else _within(checked_text(value, "consumer_group"), "consumer_group", 255)


def _within(text: str, what: str, length: int) -> str:
    size = len(text.encode())
    if size > length:
        msg = f"{what} has {size} bytes; at most {length} fit: {text[:40]!r}…"
        raise InvalidMessage(msg)
    return text


def prefix_of(uri: str) -> str:
    """What a URI starts with that a filter matches, besides the filter itself."""
    return uri if uri.endswith("/") else f"{uri}/"


def matches(uri: str, wanted: str) -> bool:
    """Whether a filter matches a URI: itself, or what lies below it."""
    return not wanted or uri == wanted or uri.startswith(prefix_of(wanted))


def uri_of(topic: str, key: str | None = None) -> str:
    """The URI of a topic's key; a slash in the key does not make another topic of it."""
    if key is None:
        return checked_uri(topic, "topic")
    escaped = checked_text(key, "key").replace("%", "%25").replace("/", "%2F")
    return checked_uri(f"{prefix_of(checked_uri(topic, 'topic'))}{escaped}", "topic and key")


def key_of(uri: str, topic: str) -> str | None:
    """The key of a topic's URI, if it has one."""
    prefix = prefix_of(topic)
    if not uri.startswith(prefix):
        return None
    return uri[len(prefix) :].replace("%2F", "/").replace("%25", "%")


def partition(index: int, count: int) -> tuple[int, int]:
    """The first and the last slot of one of `count` equal shares; together they are every slot, once."""
    return SLOTS * index // count, SLOTS * (index + 1) // count - 1


class Cursor(NamedTuple):
    """A place in the log: everything up to this position of this tick is behind it."""

    tick: int
    position: int


BEGINNING = Cursor(0, 0)


@dataclass(frozen=True, slots=True)
class Span:
    """Slots `lo` to `hi`, read up to `cursor`, held or seen under `epoch`."""

    lo: int
    hi: int
    cursor: Cursor
    epoch: int
    written: Cursor | None = None
    """Where the database has the cursor, if that is elsewhere."""
    stamp: datetime | None = None
    """When the cursor's tick was made, as it was read: another tick may have its number on a server that was behind."""

    @property
    def known(self) -> Cursor:
        """Where the database has the cursor, as far as is known."""
        return self.cursor if self.written is None else self.written

    @property
    def size(self) -> int:
        """How many slots it has."""
        return self.hi - self.lo + 1

    def has_any(self, slots: Iterable[int]) -> bool:
        """Whether one of these slots is in it."""
        return any(self.lo <= slot <= self.hi for slot in slots)

    def at(self, cursor: Cursor, stamp: datetime | None) -> "Span":
        """The same slots, read up to another place, in a tick of this stamp."""
        return replace(self, cursor=cursor, written=self.known, stamp=stamp)

    def settled(self) -> "Span":
        """The same, now that its cursor is written."""
        return replace(self, written=None)


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as somebody else may hold it."""

    span: Span
    owner: UUID | None
    is_free: bool


Slots = tuple[int, int]
"""The first and the last slot of a run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a member should give up and what it should take; each lies within one span."""

    give: tuple[Slots, ...] = ()
    take: tuple[Slots, ...] = ()


def fair_plan(seen: Iterable[SeenSpan], me: UUID, members: int) -> Plan:
    """What a member of a group of so many should do, to hold its share and no more."""
    spans = list(seen)
    mine = [each.span for each in spans if each.owner == me]
    size = sum(span.size for span in mine)
    least, more = divmod(SLOTS, max(1, members))
    held: Counter[UUID] = Counter()
    for each in spans:
        if each.owner is not None and not each.is_free:
            held[each.owner] += each.span.size
    # So many members hold one slot more than the rest: who has it keeps it, the first by name if they are too many.
    richer = sum(1 for owner, slots in held.items() if owner != me and slots > least and (size <= least or owner < me))
    room = least + int(richer < more) - size
    if room < 0:
        return Plan(give=tuple(_smallest_first(mine, -room)))
    free = [each.span for each in spans if each.is_free and each.owner != me]
    return Plan(take=tuple(_smallest_first(free, room)))


def _smallest_first(spans: Sequence[Span], slots: int) -> Iterable[Slots]:
    """Runs of exactly so many slots, or of all there are: small spans whole, then the end of a larger one."""
    for span in sorted(spans, key=lambda span: span.size):
        if slots <= 0:
            return
        size = min(span.size, slots)
        yield span.hi - size + 1, span.hi
        slots -= size


def fixed_plan(seen: Iterable[SeenSpan], me: UUID, lo: int, hi: int) -> Plan:
    """What a reader of certain slots should do: take what is free of them."""
    take = (
        (max(each.span.lo, lo), min(each.span.hi, hi))
        for each in seen
        if each.is_free and each.owner != me and each.span.lo <= hi and each.span.hi >= lo
    )
    return Plan(take=tuple(take))


def joinable(spans: Iterable[Span]) -> list[list[Span]]:
    """Runs of neighbours that have come equally far, of at least two."""
    runs: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.lo):
        last = runs[-1][-1] if runs else None
        if last is not None and last.hi + 1 == span.lo and last.cursor == span.cursor:
            runs[-1].append(span)
        else:
            runs.append([span])
    return [run for run in runs if len(run) > 1]


def furthest_behind(spans: Iterable[Span]) -> tuple[list[Span], Cursor | None]:
    """The spans that are furthest behind, and how far they may go until they meet the next ones."""
    cursors = sorted({span.cursor for span in spans})
    behind = [span for span in spans if cursors and span.cursor == cursors[0]]
    return behind, cursors[1] if len(cursors) > 1 else None


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
