"""Publishing, looking and ticking while somebody holds a snapshot: none meets what the ticks have left behind."""

import json
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox.sql import Statement, statements
from tests.log.by_hand import statement, values
from tests.log.rig import LogRig
from tests.sql.plans import nodes

pytestmark = pytest.mark.slow

TICKS = 250
GROWTH = 2
"""Pages by which a statement may grow: an index gets one level deeper, and what is found lies on another page."""

# A number that is lost, and a message behind it.
_WRITE = (
    "insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id) "
    "select greatest(nextval('{sequence_name}'), nextval('{sequence_name}')), 'k', 1, '1', '{}', now(), 1"
)


async def touched(rig: LogRig, asked: Statement, given: dict[str, Any]) -> int:
    """Pages that a statement touches, with what was locked before; it is not kept."""
    async with rig.engine.connect() as connection:
        await connection.exec_driver_sql(statement(rig, "lock_head").dollar)
        for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
            await connection.exec_driver_sql(f"set local {setting} = off")
        explain = f"explain (analyze, buffers, timing off, format json) {asked.dollar}"
        # The first one reads the catalog too.
        for _ in range(2):
            await connection.exec_driver_sql("savepoint s")
            found = (await connection.exec_driver_sql(explain, asked.arguments(given))).scalar_one()
            await connection.exec_driver_sql("rollback to savepoint s")
        await connection.rollback()
    tree = found if isinstance(found, list) else json.loads(found)
    root = next(iter(nodes(tree[0]["Plan"])))
    return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])


async def costs(rig: LogRig) -> dict[str, int]:
    """Pages of each statement."""
    given = await values(rig)
    message = {"uri": "k", "slot": 1, "payload": "1", "body": None, "metadata": "{}", "event_id": None}
    append = statements("log", rig.outbox.client.names)["append_one"]
    return {
        "append": await touched(rig, append, message),
        "look": await touched(rig, statement(rig, "progress"), given),
        "tick": await touched(rig, statement(rig), given),
    }


async def churn(rig: LogRig, ticks: int) -> None:
    """Ticks that each find a message and a number that was lost, and forget the one before."""
    for _ in range(ticks):
        await rig.ask(_WRITE)
        await rig.outbox.client.sequencer.tick(owners=True)
    for _ in range(3):
        await rig.outbox.client.sequencer.tick(owners=True)
    assert await rig.gaps() == []


async def test_no_statement_grows_with_the_ticks_under_a_held_snapshot(rig: LogRig) -> None:
    await rig.outbox.client.sequencer.progress()
    async with rig.engine.execution_options(isolation_level="REPEATABLE READ").connect() as holder:
        # With an xid of its own: gaps are not forgotten by the snapshot alone.
        await holder.execute(text("select pg_current_xact_id()"))
        await churn(rig, 3)
        before = await costs(rig)
        await churn(rig, TICKS)
        after = await costs(rig)
    grown = {name: after[name] - before[name] for name in before}
    assert max(grown.values()) <= GROWTH, f"{before} -> {after}"
