"""Which lanes there are, and how many messages of each may be read for one question.

A question reads at most `BUDGET` messages or so, however many there are. Each lane has its share; where most lanes are
short, the few that are long share what is left in a second round. Used by the questions about queues.
"""

from collections.abc import Sequence
from typing import Any

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import checked_queue
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.queue_rows import LaneRow
from faststream_outbox._internal.sql.rows import column, named

MOST = 10_000
"""Messages of one kind that are counted in a lane."""
BUDGET = 200_000
"""Messages of one kind that are counted in all lanes together, in one round."""
LEAST = 10
MOST_QUEUES = 10_000
AT_ONCE = 500
"""Lanes of one statement."""


async def queue_names(connection: DedicatedConnection, names: Names, queue: str | None = None) -> list[str]:
    """The queues that have messages, dead letters or a pause, by name; or the one that is asked for, if it has."""
    sql = statements("control", names)
    if queue is None:
        return column(await connection.fetch(sql["queues"], {"limit": MOST_QUEUES}))[:MOST_QUEUES]
    name = checked_queue(queue)
    return [name] if await connection.fetch(sql["known_queue"], {"queue": name}) else []


async def lanes_of(connection: DedicatedConnection, names: Names, queues: Sequence[str]) -> list[LaneRow]:
    """The lanes of these queues."""
    survey = statements("scan", names)["survey"]
    found: list[LaneRow] = []
    for first in range(0, len(queues), AT_ONCE):
        found += named(LaneRow, await connection.fetch(survey, {"queues": queues[first : first + AT_ONCE]}))
    return found


def share(lanes: int) -> int:
    """How many messages of each of so many lanes are counted."""
    return max(LEAST, min(MOST, BUDGET // max(1, lanes)))


def as_values(lanes: Sequence[LaneRow]) -> dict[str, Any]:
    """Lanes as parameters."""
    return {
        "queues": [lane.queue for lane in lanes],
        "keyed": [lane.keyed for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
    }
