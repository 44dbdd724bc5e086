"""The hint: which queue may have work, and what a claimer should know about it.

Travels between coroutines as an object and between processes as the payload of a NOTIFY. Anyone may
send the bare name of a queue instead, and an empty payload means every queue.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_PAYLOAD_BYTES = 7900
MOST_PRIORITIES = 100


@dataclass(frozen=True, slots=True)
class Hint:
    """`queue` may have messages of which the first is due in `due_in` seconds, and others `later` than now.

    `count` ids were drawn for them; `priorities` is empty when unknown; `keyed` and `keyless` say which
    kinds there may be; `scan` asks to look below the claimers' floor, for rows that are older than they seem.
    """

    queue: str | None
    count: int = 0
    priorities: frozenset[int] = frozenset()
    keyed: bool = True
    keyless: bool = True
    due_in: float = 0.0
    later: bool = False
    scan: bool = False


def merged(one: Hint, other: Hint) -> Hint:
    """What both hints say of the same queue."""
    known = one.priorities and other.priorities
    return Hint(
        queue=one.queue,
        count=one.count + other.count,
        priorities=one.priorities | other.priorities if known else frozenset(),
        keyed=one.keyed or other.keyed,
        keyless=one.keyless or other.keyless,
        due_in=min(one.due_in, other.due_in),
        later=one.later or other.later or one.due_in != other.due_in,
        scan=one.scan or other.scan,
    )


def payloads(hints: Iterable[Hint], sender: str) -> Iterator[str]:
    """NOTIFY payloads that carry the hints, each within PostgreSQL's limit."""
    batch: list[list[object]] = []
    size = 0
    for hint in hints:
        item: list[object] = [
            hint.queue,
            hint.count,
            sorted(hint.priorities) if len(hint.priorities) <= MOST_PRIORITIES else [],
            int(hint.keyed) + 2 * int(hint.keyless) + 4 * int(hint.scan) + 8 * int(hint.later),
            round(hint.due_in, 3),
        ]
        length = len(json.dumps(item)) + 1
        if batch and size + length > MAX_PAYLOAD_BYTES - 100:
            yield json.dumps({"from": sender, "hints": batch})
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield json.dumps({"from": sender, "hints": batch})


def parsed(payload: str) -> tuple[str, list[Hint]]:
    """Sender and hints of a payload; one that is not ours is the name of a queue, or of all when empty."""
    if payload.startswith("{"):
        try:
            message = json.loads(payload)
            hints = [
                Hint(
                    queue=queue,
                    count=int(count),
                    priorities=frozenset(int(priority) for priority in priorities),
                    keyed=bool(flags & 1),
                    keyless=bool(flags & 2),
                    scan=bool(flags & 4),
                    later=bool(flags & 8),
                    due_in=float(due_in),
                )
                for queue, count, priorities, flags, due_in in message["hints"]
            ]
            return str(message["from"]), hints
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            pass
    return "", [Hint(queue=payload or None)]
