"""Values of the named statements, with what a test does not care about filled in.

Messages are numbers and moments are seconds from now, as `two_tables` understands them.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

TTL = 600.0
TOKEN = UUID(int=1)
OTHER_TOKEN = UUID(int=2)


def message(number: int, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    """The values of one message, known by its number."""
    usual = {"payload": b"%d" % number, "headers": None, "due_at": None, "due_in": 0.0, "key": None, "priority": 0}
    return {"queue": queue, **usual, **fields, "message_id": str(UUID(int=number))}


def several(*messages: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of many messages, as arrays."""
    plural = {
        "queue": "queues", "payload": "payloads", "headers": "headers", "due_at": "due_ats", "due_in": "due_ins",
        "key": "keys", "priority": "priorities", "message_id": "message_ids", "timer_id": "timer_ids",
        "conflict": "conflicts",
    }  # fmt: skip
    return {plural[name]: [one[name] for one in messages] for name in messages[0]}


def lanes(*names: tuple[str, int], token: UUID = TOKEN, floor: float | None = None, quota: int = 10) -> dict[str, Any]:
    """Values of `claim` for lanes of a queue and a priority."""
    return places(*names, floor=floor, quota=quota) | {
        "ttls": [TTL] * len(names),
        "token": token,
        "unheard": [],
    }


def places(
    *names: tuple[str, int], floor: float | None = None, floor_id: int = 0, grace: float = 0.0, quota: int = 10
) -> dict[str, Any]:
    """Values of `find_keys` for lanes of a queue and a priority."""
    many = len(names)
    return {
        "queues": [queue for queue, _ in names],
        "priorities": [priority for _, priority in names],
        "floor_ats": [floor] * many,
        "floor_ids": [floor_id] * many,
        "graces": [grace] * many,
        "quotas": [quota] * many,
    }


def keys(*names: str, token: UUID = TOKEN, run: int = 2, held_by_dead: bool = False) -> dict[str, Any]:
    """Values of `claim_keys` for keys of the queue."""
    many = len(names)
    return {
        "queues": ["orders"] * many,
        "keys": list(names),
        "runs": [run] * many,
        "ttls": [TTL] * many,
        "held_by_dead": [held_by_dead] * many,
        "nexts": [None] * many,
        "floors": [None] * many,
        "server": None,
        "token": token,
        "unheard": [],
    }


def heads(*names: tuple[str, int], most: int = 100, held_by_dead: bool = True) -> dict[str, Any]:
    """Values of `claimable_keys` for lanes of a queue and a priority."""
    many = len(names)
    return {
        "queues": [queue for queue, _ in names],
        "priorities": [priority for _, priority in names],
        "ttls": [TTL] * many,
        "held_by_dead": [held_by_dead] * many,
        "most": most,
        "unheard": [],
    }


def held(*numbers: int, token: UUID = TOKEN, **each: Any) -> dict[str, Any]:
    """Values of what settles messages."""
    return {"ids": list(numbers), "tokens": [token] * len(numbers)} | {
        name: [value] * len(numbers) for name, value in each.items()
    }


DEATH: dict[str, Any] = {
    "attempts": 1,
    "reasons": "rejected",
    "exceptions": "ValueError()",
    "error_types": "ValueError",
    "error_messages": "no",
    "tracebacks": "…",
}
SETTLING: dict[str, dict[str, Any]] = {
    "lock": {},
    "settle_done": {},
    "settle_within": {},
    "settle_retry": {"delays": 200.0, "attempts": 1},
    "settle_release": {"uncounted": 1},
    "settle_dead": DEATH,
    "settle_apart": {"reasons": "rejected"},
    "renew": {"ttls": TTL},
}
