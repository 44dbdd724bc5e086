"""Publishing, looking and ticking while somebody holds a snapshot: none meets what the ticks have left behind."""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from faststream_outbox._internal.sql.statements import statements
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


Prepared = Mapping[str, tuple[AsyncConnection, Mapping[str, Any]]]
"""By the name of a statement: a connection that has planned it, and what it is given."""


async def prepared(rig: LogRig, stack: AsyncExitStack) -> Prepared:
    """Each statement with the plan that its connection keeps."""
    given = await values(rig)
    message = {"uri": "k", "slot": 1, "payload": "1", "body": None, "metadata": "{}", "event_id": None}
    asked = {
        "append": (statements("log", rig.outbox.client.names)["append_one"], message),
        "look": (statement(rig, "progress"), given),
        "tick": (statement(rig), given),
    }
    connections = {}
    for name, (one, arguments) in asked.items():
        connection = await stack.enter_async_context(rig.engine.connect())
        for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
            await connection.exec_driver_sql(f"set {setting} = off")
        await connection.exec_driver_sql("set plan_cache_mode = force_generic_plan")
        await connection.exec_driver_sql(f"prepare asked as {one.dollar}")
        await connection.commit()
        connections[name] = (connection, dict(zip(one.parameters, one.arguments(arguments), strict=True)))
    return connections


async def touched(rig: LogRig, connection: AsyncConnection, given: Mapping[str, Any]) -> int:
    """Pages that the prepared statement touches, with what was locked before; it is not kept."""
    await connection.exec_driver_sql(statement(rig, "lock_head").dollar)
    literals = ", ".join(map(literal, given.values()))
    explain = "explain (analyze, buffers, timing off, format json) execute asked" + (literals and f"({literals})")
    # The first one reads the catalog too.
    for _ in range(2):
        await connection.exec_driver_sql("savepoint s")
        found = (await connection.exec_driver_sql(explain)).scalar_one()
        await connection.exec_driver_sql("rollback to savepoint s")
    await connection.rollback()
    tree = found if isinstance(found, list) else json.loads(found)
    root, *others = nodes(tree[0]["Plan"])
    # The root does not know of parts that write and return nothing; what they look for is counted by itself.
    counted = [root, *(node for node in others if node["Node Type"].startswith("Index"))]
    return sum(int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"]) for node in counted)


def literal(value: Any) -> str:
    """A value as SQL."""
    return "null" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


async def costs(rig: LogRig, connections: Prepared) -> dict[str, int]:
    """Pages of each statement, when the planner has learned how few rows are left on how many pages."""
    await rig.ask("analyze {head_table}, {gap_table}, {ticks}, {log}")
    return {name: await touched(rig, connection, given) for name, (connection, given) in connections.items()}


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
    async with AsyncExitStack() as stack:
        connections = await prepared(rig, stack)
        repeatable = rig.engine.execution_options(isolation_level="REPEATABLE READ")
        holder = await stack.enter_async_context(repeatable.connect())
        # With an xid of its own: gaps are not forgotten by the snapshot alone.
        await holder.execute(text("select pg_current_xact_id()"))
        await churn(rig, 3)
        before = await costs(rig, connections)
        await churn(rig, TICKS)
        after = await costs(rig, connections)
    grown = {name: after[name] - before[name] for name in before}
    assert max(grown.values()) <= GROWTH, f"{before} -> {after}"
