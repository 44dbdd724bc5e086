"""What the library asks the outbox table: each hot statement with values as a worker would give them.

`questions` are those of steady work, which must cost in proportion to what they return; `rounds` are those
of the slow tick, which look from the beginning and may walk what lies there, once. Used by `test_plans`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from faststream_outbox._internal.queue.lanes import BEGINNING
from tests.sql.states import TOKEN, State

BATCH = 100
WINDOW = 500
RUNS = 20
RUN = 5
LOOK_AHEAD = 8
TTL = 60.0


@dataclass(frozen=True, slots=True)
class Question:
    """A statement with its values, the indexes that it is meant to use, and the rows that it may return."""

    file: str
    name: str
    values: dict[str, Any]
    indexes: frozenset[str]
    rows: int


def _indexes(state: State, *names: str) -> frozenset[str]:
    return frozenset(name if name == "Tid Scan" else f"{state.names.table}_{name}" for name in names)


def lanes(floor: datetime | None) -> dict[str, Any]:
    """Values of `claim` for three lanes and one that is empty."""
    return {
        "queues": ["orders", "orders", "nothing", "other7"],
        "priorities": [0, 5, 0, 0],
        "floor_ats": [floor] * 4,
        "floor_ids": [0] * 4,
        "quotas": [BATCH // 4] * 4,
        "ttls": [TTL] * 4,
        "token": uuid4(),
        "unheard": [],
    }


def _settled(state: State) -> dict[str, Any]:
    ids = state.ids_held(BATCH)
    return {"ids": ids, "tokens": [TOKEN] * len(ids)}


def _runs(nexts: list[int | None]) -> dict[str, Any]:
    return {
        "queues": ["ledger"] * RUNS,
        "keys": [f"k{number:04}" for number in range(RUNS)],
        "runs": [RUN] * RUNS,
        "ttls": [TTL] * RUNS,
        "held_by_dead": [True] * RUNS,
        "nexts": nexts,
        "floors": [None] * RUNS,
        "server": None,
        "token": uuid4(),
        "unheard": [],
    }


def questions(state: State) -> Iterator[Question]:
    """The statements of steady work."""
    now = datetime.now(UTC)
    # Above the dead entries, where there are any; in the midst of a backlog otherwise.
    floor = now - timedelta(minutes=1 if state.dead_entries else 60)
    claim = _indexes(state, "claim_idx", "timer_id_uq", "Tid Scan")
    yield Question("claim", "claim", lanes(floor), claim, BATCH)
    look = {name: values for name, values in lanes(floor).items() if name not in ("quotas", "ttls", "token")}
    either = _indexes(state, "claim_idx", "key_due_idx", "timer_id_uq")
    kinds = {"keyed": [False, False, False, True], "ttl": TTL}
    yield Question("claim", "find_lanes", look | kinds, either, 4)
    strays = {"ids": state.ids_held(BATCH), "queues": ["held"] * BATCH, "ttls": [0.0] * BATCH}
    found = _indexes(state, "pkey", "timer_id_uq", "Tid Scan")
    yield Question("claim", "claim_found", strays | {"token": uuid4(), "unheard": []}, found, BATCH)
    by_key = _indexes(state, "key_idx", "later_idx", "waiting_idx", "pkey", "timer_id_uq", "Tid Scan")
    yield Question("keys", "claim_keys", _runs(state.next_of_keys(RUN)), by_key, RUNS * (RUN + LOOK_AHEAD))
    runs = _runs([None] * RUNS)
    heads = {"queues": runs["queues"], "keys": runs["keys"], "firsts": [2**62] * RUNS}
    lower = _indexes(state, "key_idx", "later_idx", "waiting_idx")
    yield Question("keys", "overtaken", heads, lower, RUNS + state.dead_entries)
    place = {"queues": ["ledger"], "priorities": [0], "floor_ats": [floor], "floor_ids": [0]}
    yield Question("keys", "find_keys", place | {"quotas": [WINDOW]}, _indexes(state, "key_due_idx"), WINDOW)
    due = {"queues": ["orders", "ledger", "timers"], "priorities": [0] * 3, "keyed": [False, True, False]}
    yield Question("scan", "next_due", due | {"floor_ats": [now] * 3}, _indexes(state, "claim_idx", "key_due_idx"), 3)
    settle, keyed = _settled(state), _indexes(state, "pkey", "Tid Scan")
    count = len(settle["ids"])
    yield Question("settle", "settle_done", settle, keyed, count)
    yield Question("settle", "settle_within", settle, keyed, count)
    yield Question("settle", "lock", settle, _indexes(state, "pkey"), count)
    yield Question("settle", "settle_retry", settle | {"delays": [1.0] * count, "attempts": [1] * count}, keyed, count)
    yield Question("settle", "settle_release", settle | {"uncounted": [1] * count}, keyed, count)
    yield Question("settle", "settle_apart", settle | {"reasons": ["rejected"] * count}, keyed, count)
    texts = ("reasons", "exceptions", "error_types", "error_messages", "tracebacks")
    verdict = {name: ["text"] * count for name in texts} | {"attempts": [1] * count}
    yield Question("settle", "settle_dead", settle | verdict, keyed, count)
    yield Question("settle", "renew", settle | {"ttls": [TTL] * count}, keyed, count)
    timer = {"queue": "timers", "timer_id": "t7"}
    yield Question("publish", "cancel_timer", timer, _indexes(state, "timer_id_uq"), 1)


def rounds(state: State) -> Iterator[Question]:
    """The statements that look from the beginning."""
    claim = _indexes(state, "claim_idx", "timer_id_uq", "Tid Scan")
    yield Question("claim", "claim", lanes(BEGINNING), claim, BATCH)
    # A key that this process did not hold last is searched for a lease of somebody else's.
    by_key = _indexes(state, "key_idx", "later_idx", "waiting_idx", "pkey", "timer_id_uq", "Tid Scan")
    yield Question("keys", "claim_keys", _runs([None] * RUNS), by_key, RUNS * (RUN + LOOK_AHEAD + state.depth))
    walk = {"queue": "ledger", "after": "", "keys": WINDOW, "ttl": TTL, "held_by_dead": True, "unheard": []}
    walked = _indexes(state, "key_idx", "later_idx", "waiting_idx", "timer_id_uq")
    yield Question("scan", "walk_keys", walk, walked, WINDOW)
    lane = {"queues": ["ledger", "nothing"], "priorities": [0, 0], "ttls": [TTL] * 2, "held_by_dead": [True] * 2}
    seen = _indexes(state, "key_due_idx", "key_idx", "waiting_idx", "timer_id_uq")
    yield Question("scan", "claimable_keys", lane | {"most": WINDOW, "unheard": []}, seen, WINDOW)
    below = {
        **{"queues": ["orders", "nothing"], "priorities": [0, 0], "from_ats": [BEGINNING] * 2, "from_ids": [0, 0]},
        **{"to_ats": [datetime.now(UTC)] * 2, "to_ids": [0, 0], "ttls": [TTL] * 2, "most": WINDOW, "unheard": []},
    }
    lanes_below = _indexes(state, "claim_idx", "timer_id_uq")
    yield Question("scan", "claimable", below, lanes_below, 2 * WINDOW)
    both = _indexes(state, "claim_idx", "key_due_idx")
    yield Question("scan", "survey", {"queues": ["orders", "ledger", "nothing"]}, both, 3)
    yield Question("publish", "unprocessed_of_queue", {"queue": "ledger", "limit": BATCH}, both, BATCH)


STEADY = (
    "claim",
    "find_lanes",
    "claim_found",
    "claim_keys",
    "overtaken",
    "find_keys",
    "next_due",
    "settle_done",
    "settle_within",
    "lock",
    "settle_retry",
    "settle_release",
    "settle_apart",
    "settle_dead",
    "renew",
    "cancel_timer",
)
SLOW = ("claim", "claim_keys", "claimable_keys", "walk_keys", "claimable", "survey", "unprocessed_of_queue")
