"""From envelopes to one statement and its values, and from its rows back to ids. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from faststream_outbox.envelope import MAX_BODY_BYTES, CheckedEnvelope, Envelope, checked
from faststream_outbox.errors import InvalidMessage
from faststream_outbox.publish.ids import random_ids
from faststream_outbox.wakeup.hint import Hint

BACKDATED_SECONDS = 0.5
MOST_BYTES = 8_000_000
MOST_ROWS = 10_000


def checked_batch(envelopes: Sequence[Envelope]) -> list[CheckedEnvelope]:
    """The envelopes as rows; refuses a timer that the same call would change twice."""
    rows = [checked(envelope) for envelope in envelopes]
    size = sum(len(row.payload) + len(row.headers or "") for row in rows)
    if size > MAX_BODY_BYTES:
        msg = (
            f"The messages of this call have {size} bytes together; {MAX_BODY_BYTES} fit. Publish them in smaller "
            "calls, or store bodies elsewhere and send their names."
        )
        raise InvalidMessage(msg)
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


def portions(rows: Sequence[CheckedEnvelope]) -> Iterator[Sequence[CheckedEnvelope]]:
    """The rows in order, in portions that one statement carries without needing many times their memory."""
    begin = size = 0
    for place, row in enumerate(rows):
        size += len(row.payload) + len(row.headers or "")
        if size > MOST_BYTES or place - begin >= MOST_ROWS:
            yield rows[begin : max(place, begin + 1)]
            begin, size = max(place, begin + 1), len(row.payload)
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
    if _are_alike(rows):
        # Arrays of values that are all the same cost the driver as much as those that are not.
        first = rows[0]
        return "publish_alike", {
            "queue": first.queue,
            "due_at": first.due_at,
            "due_in": first.due_in,
            "key": first.key,
            "priority": first.priority,
            "payloads": [row.payload for row in rows],
            "headers": [row.headers for row in rows],
            "message_ids": _message_ids(rows),
        }
    values: dict[str, Any] = {
        "queues": [row.queue for row in rows],
        "payloads": [row.payload for row in rows],
        "headers": [row.headers for row in rows],
        "due_ats": [row.due_at for row in rows],
        "due_ins": [row.due_in for row in rows],
        "keys": [row.key for row in rows],
        "priorities": [row.priority for row in rows],
        "message_ids": _message_ids(rows),
    }
    if all(row.timer_id is None for row in rows):
        return "publish_many", values
    values["timer_ids"] = [row.timer_id for row in rows]
    values["conflicts"] = [row.conflict for row in rows]
    return "publish_timers", values


def _are_alike(rows: Sequence[CheckedEnvelope]) -> bool:
    """Whether all messages go the same way at the same time, and none is a timer."""
    first = rows[0]
    alike = (first.queue, first.key, first.priority, first.due_at, first.due_in, None)
    return all((row.queue, row.key, row.priority, row.due_at, row.due_in, row.timer_id) == alike for row in rows)


def _message_ids(rows: Sequence[CheckedEnvelope]) -> list[str]:
    """The ids given, and random ones for the others."""
    return [
        drawn if row.message_id is None else str(row.message_id)
        for row, drawn in zip(rows, random_ids(len(rows)), strict=True)
    ]


def ids_of(rows: Sequence[CheckedEnvelope], returned: Sequence[Sequence[Any]]) -> list[int | None]:
    """The id of each row in the order given; None where a timer_id was taken."""
    if all(row.timer_id is None for row in rows):
        return [int(row[0]) for row in returned]
    # Rows without a timer always come back, in their order; a timer is known by its name.
    plain = iter([int(row[0]) for row in returned if row[2] is None])
    timers = {(str(row[1]), str(row[2])): int(row[0]) for row in returned if row[2] is not None}
    return [next(plain) if row.timer_id is None else timers.pop((row.queue, row.timer_id), None) for row in rows]


def hints_of(rows: Sequence[CheckedEnvelope], ids: Sequence[int | None]) -> list[Hint]:
    """One hint per queue for the rows that were written."""
    written: dict[str, list[CheckedEnvelope]] = {}
    for row, row_id in zip(rows, ids, strict=True):
        if row_id is not None:
            written.setdefault(row.queue, []).append(row)
    now = datetime.now(UTC)
    return [_hint(queue, of_queue, now) for queue, of_queue in written.items()]


def _hint(queue: str, rows: Sequence[CheckedEnvelope], now: datetime) -> Hint:
    due = [row.due_in if row.due_at is None else (row.due_at - now).total_seconds() for row in rows]
    due_in = min(due)
    keyed = sum(row.key is not None for row in rows)
    return Hint(
        queue=queue,
        count=len(rows),
        priorities=frozenset({row.priority for row in rows}),
        keyed=keyed > 0,
        keyless=keyed < len(rows),
        due_in=max(0.0, due_in),
        later=max(due) > max(0.0, due_in),
        scan=due_in < -BACKDATED_SECONDS,
    )
