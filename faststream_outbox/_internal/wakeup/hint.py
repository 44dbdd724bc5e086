"""The hint: which queue may have work, and what a claimer should know about it.

Travels between coroutines as an object and between processes as the payload of a NOTIFY, which `HintReceiver` reads
for the listener. Anyone may send the bare name of a queue instead, and an empty payload means every queue. Any role
may send any payload: what is not within the bounds of a hint is no hint of ours. Workers of 0.19 know bare names
alone: while there may be some, the names follow the payload in the same transaction.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_PAYLOAD_BYTES = 7900
MOST_PRIORITIES = 100
MOST_COUNTED = 2**31
HIGHEST_ID = 2**63 - 1
LONGEST_DUE_IN = 1e12
"""Seconds; more than there are until the year 9999."""
NAMED = '{"named": true, '
"""How a payload begins that is followed by the bare names of its queues."""
_FLAGS = range(16)
_PRIORITIES = range(-32768, 32768)


@dataclass(frozen=True, slots=True)
class Hint:
    """`queue` may have messages of which the first is due in `due_in` seconds, and others `later` than now.

    `count` ids were drawn for them, none above `last_id`; `priorities` is empty when unknown; `keyed` and `keyless`
    say which kinds there may be; `scan` asks for a scan below the claimers' floor, for rows that are older than they
    seem.
    """

    queue: str | None
    count: int = 0
    priorities: frozenset[int] = frozenset()
    keyed: bool = True
    keyless: bool = True
    due_in: float = 0.0
    later: bool = False
    scan: bool = False
    last_id: int = 0


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
        last_id=max(one.last_id, other.last_id),
    )


class Notice(NamedTuple):
    """A NOTIFY's payload, and the queues in it that have something to do at once."""

    payload: str
    names: list[str]


def payloads(hints: Iterable[Hint], sender: str) -> Iterator[str]:
    """NOTIFY payloads that carry the hints, each within PostgreSQL's limit."""
    return (notice.payload for notice in notices(hints, sender))


def notices(hints: Iterable[Hint], sender: str) -> Iterator[Notice]:
    """NOTIFY payloads that carry the hints, each within PostgreSQL's limit, and their names for workers of 0.19."""
    batch: list[list[object]] = []
    names: list[str] = []
    size = 0
    for hint in hints:
        item: list[object] = [
            hint.queue,
            min(hint.count, MOST_COUNTED),
            sorted(hint.priorities) if len(hint.priorities) <= MOST_PRIORITIES else [],
            int(hint.keyed) + 2 * int(hint.keyless) + 4 * int(hint.scan) + 8 * int(hint.later),
            min(round(hint.due_in, 3), LONGEST_DUE_IN),
            hint.last_id,
        ]
        length = len(json.dumps(item)) + 1
        if batch and size + length > MAX_PAYLOAD_BYTES - 100:
            yield Notice(json.dumps({"from": sender, "hints": batch}), names)
            batch, names, size = [], [], 0
        batch.append(item)
        size += length
        # Workers of 0.19 can do nothing about what is due later.
        if hint.queue and hint.due_in <= 0:
            names.append(hint.queue)
    if batch:
        yield Notice(json.dumps({"from": sender, "hints": batch}), names)


def parsed(payload: str) -> tuple[str, list[Hint]]:
    """Sender and hints of a payload; one that is not ours is the name of a queue, or of all when empty."""
    if payload.startswith("{"):
        try:
            message = json.loads(payload)
            sender, items = message["from"], message["hints"]
            if isinstance(sender, str) and isinstance(items, list):
                return sender, [_read(*item) for item in items]
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
    return "", [Hint(queue=payload or None)]


class HintReceiver:
    """Hands the hints of other processes to `receive`; knows what workers of 0.19 are sent besides."""

    def __init__(self, receive: Callable[[Hint], None], sender: str) -> None:
        self._receive = receive
        self._sender = sender
        self._names_to_come: set[tuple[int, str | None]] = set()

    def hear(self, pid: int, payload: str) -> None:
        """Somebody has sent this."""
        if (pid, payload) in self._names_to_come:
            # For workers of 0.19: we have just heard more of it.
            self._names_to_come.remove((pid, payload))
            return
        sender, hints = parsed(payload)
        # They come in the same transaction, so that nobody else's payload comes in between.
        self._names_to_come = {(pid, hint.queue) for hint in hints} if payload.startswith(NAMED) else set()
        if sender != self._sender:
            for hint in hints:
                self._receive(hint)

    def missed(self) -> None:
        """Something may have been sent while nobody listened: every queue may have work."""
        self._receive(Hint(None))


def _read(queue: Any, count: Any, priorities: Any, flags: Any, due_in: Any, last_id: Any) -> Hint:
    """The hint that these values are; ValueError where one is not what we would have sent."""
    is_ours = (
        (queue is None or type(queue) is str)
        and type(count) is int
        and 0 <= count <= MOST_COUNTED
        and type(priorities) is list
        and len(priorities) <= MOST_PRIORITIES
        and all(type(priority) is int and priority in _PRIORITIES for priority in priorities)
        and type(flags) is int
        and flags in _FLAGS
        and type(due_in) in (int, float)
        # False for what is not a number, too.
        and 0 <= due_in <= LONGEST_DUE_IN
        and type(last_id) is int
        and 0 <= last_id <= HIGHEST_ID
    )
    if not is_ours:
        msg = "This is no hint."
        raise ValueError(msg)
    return Hint(
        queue=queue,
        count=count,
        priorities=frozenset(priorities),
        keyed=bool(flags & 1),
        keyless=bool(flags & 2),
        scan=bool(flags & 4),
        later=bool(flags & 8),
        due_in=float(due_in),
        last_id=last_id,
    )
