"""From envelopes to one statement and its values, and from its rows back to ids.

Messages that differ in their bodies alone are one row for all of them, and the bodies: a thousand rows would be a
thousand tuples to make, to take apart again and, for the garbage collector, to visit. Their random ids are drawn at
once, at a tenth of what `uuid4` takes. Pure. Used by `put` and by the broker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import urandom
from typing import Any, overload
from uuid import UUID

from faststream_outbox._internal.envelope import (
    MAX_BODY_BYTES,
    CheckedEnvelope,
    Envelope,
    checked,
    checked_body,
    checked_headers,
    size_of,
)
from faststream_outbox._internal.sql.queue_rows import PublishedRow
from faststream_outbox._internal.sql.statements import column, named
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import InvalidMessage


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


_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def random_ids(count: int) -> list[str]:
    """So many new ids."""
    drawn = urandom(16 * count).hex()
    return [
        f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANT[one[16]]}{one[17:20]}-{one[20:]}"
        for one in (drawn[at : at + 32] for at in range(0, 32 * count, 32))
    ]


BACKDATED_SECONDS = 0.5
CLOCK_SECONDS = 60.0
"""A time within this distance may be in the past by the server's clock, or in the future."""
MOST_BYTES = 8_000_000
MOST_ROWS = 10_000


def checked_batch(envelopes: Iterable[Envelope | CheckedEnvelope]) -> Sequence[CheckedEnvelope]:
    """The envelopes as rows; refuses a timer that the same call would change twice."""
    rows = envelopes if isinstance(envelopes, Alike) else list(_checked_each(envelopes))
    size = sum(_sizes(rows))
    if size > MAX_BODY_BYTES:
        msg = (
            f"The messages of this call have {size} bytes together; {MAX_BODY_BYTES} fit. Publish them in smaller "
            "calls, or store bodies elsewhere and send their names."
        )
        raise InvalidMessage(msg)
    if isinstance(rows, Alike):
        return rows
    taken: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.timer_id is None:
            continue
        timer = (row.queue, row.timer_id)
        if timer in taken and {row.conflict, taken[timer]} != {"ignore"}:
            msg = f"timer_id {row.timer_id!r} of queue {row.queue!r} appears twice in one call; publish it once."
            raise InvalidMessage(msg)
        taken[timer] = row.conflict
    return rows


def _sizes(rows: Sequence[CheckedEnvelope]) -> list[int]:
    return rows.sizes() if isinstance(rows, Alike) else [len(row.payload) + size_of(row.headers or "") for row in rows]


def _checked_each(envelopes: Iterable[Envelope | CheckedEnvelope]) -> Iterator[CheckedEnvelope]:
    known: Envelope | None = None
    row: CheckedEnvelope | None = None
    for envelope in envelopes:
        if isinstance(envelope, CheckedEnvelope):
            yield envelope
            continue
        if known is not None and row is not None and _goes_the_same_way(envelope, known):
            # What is the same object as in the message before has been checked with it.
            headers = row.headers if envelope.headers is known.headers else checked_headers(envelope.headers)
            row = row.with_content(envelope.body, headers)
        else:
            row = checked(envelope)
        known = envelope if row.timer_id is None and row.message_id is None else None
        yield row


def _goes_the_same_way(one: Envelope, known: Envelope) -> bool:
    return (
        type(one) is Envelope
        and type(one.body) is bytes
        and one.queue is known.queue
        and one.key is known.key
        and one.priority is known.priority
        and one.activate_in is known.activate_in
        and one.activate_at is known.activate_at
        and one.timer_id is None
        and one.timer_conflict is known.timer_conflict
        and one.message_id is None
    )


def portions(rows: Sequence[CheckedEnvelope]) -> Iterator[Sequence[CheckedEnvelope]]:
    """The rows in order, in portions that one statement carries without needing many times their memory."""
    begin = size = 0
    for place, row_size in enumerate(_sizes(rows)):
        if place > begin and (size + row_size > MOST_BYTES or place - begin >= MOST_ROWS):
            yield rows[begin:place]
            begin, size = place, 0
        size += row_size
    if begin < len(rows):
        yield rows[begin:]


def insertion(rows: Sequence[CheckedEnvelope]) -> tuple[str, Mapping[str, Any]]:
    """The name of the statement that inserts the rows, and its values."""
    if len(rows) == 1 and rows[0].timer_id is None:
        row = rows[0]
        return "publish_one", {
            "queue": row.queue,
            "payload": row.payload,
            "headers": row.headers,
            "due_at": row.due_at,
            "due_in": row.due_in,
            "key": row.key,
            "priority": row.priority,
            "message_id": None if row.message_id is None else str(row.message_id),
        }
    if isinstance(rows, Alike):
        return "publish_alike", _alike(rows.row, rows.payloads, random_ids(len(rows)))
    # Lists, because psycopg makes arrays of nothing else.
    queues, payloads, headers, due_ats, due_ins, keys, priorities, timer_ids, conflicts, ids = map(
        list, zip(*rows, strict=True)
    )
    message_ids = _message_ids(ids)
    is_without_timers = timer_ids.count(None) == len(rows)
    if is_without_timers and all(map(_is_one_value, (queues, headers, due_ats, due_ins, keys, priorities))):
        # Arrays of values that are all the same cost the driver as much as those that are not.
        return "publish_alike", _alike(rows[0], payloads, message_ids)
    values = {
        "payloads": payloads,
        "message_ids": message_ids,
        "queues": queues,
        "headers": headers,
        "due_ats": due_ats,
        "due_ins": due_ins,
        "keys": keys,
        "priorities": priorities,
    }
    if is_without_timers:
        return "publish_many", values
    values["timer_ids"] = timer_ids
    if conflicts.count("ignore") == len(rows):
        return "publish_new_timers", values
    return "publish_timers", values | {"conflicts": conflicts}


def _alike(row: CheckedEnvelope, payloads: list[bytes], message_ids: list[str]) -> dict[str, Any]:
    return {
        "payloads": payloads,
        "message_ids": message_ids,
        "queue": row.queue,
        "headers": row.headers,
        "due_at": row.due_at,
        "due_in": row.due_in,
        "key": row.key,
        "priority": row.priority,
    }


def _is_one_value(column: list[Any]) -> bool:
    return column.count(column[0]) == len(column)


def _message_ids(given: Sequence[UUID | None]) -> list[str]:
    """The ids given, and random ones for the others."""
    drawn = random_ids(len(given))
    if given.count(None) == len(given):
        return drawn
    return [new if one is None else str(one) for one, new in zip(given, drawn, strict=True)]


def ids_of(rows: Sequence[CheckedEnvelope], returned: Sequence[Sequence[Any]]) -> list[int | None]:
    """The id of each row in the order given; None where a timer_id was taken."""
    if isinstance(rows, Alike) or all(row.timer_id is None for row in rows):
        return column(returned)
    written = named(PublishedRow, returned)
    # Rows without a timer always come back, in their order; a timer is known by its name.
    plain = iter([row.id for row in written if row.timer_id is None])
    timers = {(row.queue, row.timer_id): row.id for row in written if row.timer_id is not None}
    return [next(plain) if row.timer_id is None else timers.pop((row.queue, row.timer_id), None) for row in rows]


def hints_of(rows: Sequence[CheckedEnvelope], ids: Sequence[int | None]) -> list[Hint]:
    """One hint per queue for the rows that were written."""
    if len(rows) == 1 and ids[0] is not None and rows[0].due_at is None:
        row = rows[0]
        is_keyed = row.key is not None
        return [Hint(row.queue, 1, frozenset((row.priority,)), is_keyed, not is_keyed, row.due_in, last_id=ids[0])]
    last_id = max((row_id for row_id in ids if row_id is not None), default=0)
    if isinstance(rows, Alike):
        return [replace(_hint(rows.row.queue, [rows.row], datetime.now(UTC), last_id), count=len(rows))]
    written: dict[str, list[CheckedEnvelope]] = {}
    if None not in ids and _is_one_value([row.queue for row in rows]):
        written[rows[0].queue] = list(rows)
    else:
        for row, row_id in zip(rows, ids, strict=True):
            if row_id is not None:
                written.setdefault(row.queue, []).append(row)
    now = datetime.now(UTC)
    return [_hint(queue, of_queue, now, last_id) for queue, of_queue in written.items()]


def _hint(queue: str, rows: Sequence[CheckedEnvelope], now: datetime, last_id: int) -> Hint:
    due = [
        due_in if due_at is None else (due_at - now).total_seconds()
        for due_at, due_in in {(row.due_at, row.due_in) for row in rows}
    ]
    due_in = min(due)
    is_by_clock = any(row.due_at is not None for row in rows)
    keyless = [row.key for row in rows].count(None)
    return Hint(
        queue=queue,
        count=len(rows),
        priorities=frozenset([row.priority for row in rows]),
        keyed=keyless < len(rows),
        keyless=keyless > 0,
        due_in=max(0.0, due_in),
        # What is due by this clock may not be so by the server's, and the other way round.
        later=is_by_clock or max(due) > max(0.0, due_in),
        scan=due_in < (CLOCK_SECONDS if is_by_clock else -BACKDATED_SECONDS),
        last_id=last_id,
    )
