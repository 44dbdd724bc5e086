"""Repairing the head of a log: of a copy that came without its sequence, or of data that was restored beside another.

Publishers look at nothing but the sequence. Where it has gone back, they draw numbers that lie behind every cursor, or
that belonged to messages which retention has deleted. So nobody ticks until it is known which numbers hold a message
that is in a tick; all others become gaps again, and what is there is in the next tick. Nothing is skipped, and what is
in a tick does not come again. Each step is bounded, however long the log is. Used by `Sequencer`.
"""

from collections.abc import Iterable, Sequence

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql import Statements
from faststream_outbox._internal.sql.log_rows import AdvancedSequence, KeptRanges
from faststream_outbox._internal.sql.rows import column, named

SLICE = 100_000
"""About how many messages one statement reads."""

Ranges = Sequence[tuple[int, int]]


def holes(kept: Iterable[tuple[int, int]], high: int) -> Ranges:
    """The numbers from 1 to `high` that are in none of these ranges; as ranges, in order."""
    found = []
    free = 1
    for lo, hi in sorted(kept):
        if lo > free:
            found.append((free, min(lo - 1, high)))
        free = max(free, hi + 1)
        if free > high:
            break
    if free <= high:
        found.append((free, high))
    return [(lo, hi) for lo, hi in found if lo <= hi]


async def repair(connection: DedicatedConnection, sql: Statements, place: str) -> Sequence[AdvancedSequence]:
    """Make the head, or make it anew; from where to where the sequence was moved, if it had to be."""
    here = {"place": place}
    steps = [(sql[name], here) for name in ("wait_for_head", "suspend", "advance_sequence")]
    results = await connection.fetch_each(steps)
    if len(results) < len(steps):
        # Somebody else has repaired it.
        return []
    _, suspended, advanced = results
    (high,) = column(suspended)
    kept: list[tuple[int, int]] = []
    tick = 0
    while True:
        (found,) = named(KeptRanges, await connection.fetch(sql["kept"], {"tick": tick, "limit": SLICE}))
        if found.last is None:
            break
        kept += zip(found.lows, found.highs, strict=True)
        tick = found.last
    gaps = holes(kept, high)
    values = {**here, "lows": [lo for lo, _ in gaps], "highs": [hi for _, hi in gaps]}
    await connection.fetch_each([(sql["wait_for_head"], {}), (sql["repair"], values)])
    return named(AdvancedSequence, advanced)
