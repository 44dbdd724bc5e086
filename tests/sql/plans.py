"""Plans of the library's own statements: asked for as a long-lived connection would have them, and read.

`Plans.of` prepares a statement as it is sent, runs it under EXPLAIN ANALYZE with a custom or a generic
plan, rolls back, and gives what the plan says about one table. Used by `test_plans`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.schema import Names

PlanMode = Literal["force_custom_plan", "force_generic_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a statement did to the outbox table."""

    scans: frozenset[str]
    """Names of the indexes used; the kind of scan where no index was."""
    buffers: int
    """Pages of all relations, counted each time they were looked at."""
    walked: int
    """Rows of the table that were looked at, kept or not."""
    tree: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{sorted(self.scans)}, {self.walked} rows, {self.buffers} buffers\n" + "\n".join(_lines(self.tree))


@dataclass(frozen=True, slots=True)
class Plans:
    """Asks for plans on one connection, which must not be in a transaction."""

    connection: psycopg.Connection[Any]
    names: Names

    def of(self, file: str, name: str, values: Mapping[str, Any], mode: PlanMode) -> Plan:
        """The plan of a named statement with these values, run and rolled back."""
        statement = statements(file, self.names)[name]
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute(f"prepare asked as {statement.dollar}".replace("%", "%%"))
            cursor.execute("begin")
            try:
                cursor.execute(f"set local plan_cache_mode = {mode}")
                places = f"({', '.join(['%s'] * len(statement.parameters))})" if statement.parameters else ""
                cursor.execute(
                    f"explain (analyze, buffers, timing off, format json) execute asked{places}",
                    statement.arguments(values),
                )
                row = cursor.fetchone()
                assert row is not None
            finally:
                cursor.execute("rollback")
                cursor.execute("deallocate asked")
        return read(row[0][0]["Plan"], self.names.table)


def read(tree: Mapping[str, Any], table: str) -> Plan:
    """What a plan says about the table."""
    scans: set[str] = set()
    walked = 0
    for node in nodes(tree):
        kind = str(node["Node Type"])
        if kind == "Bitmap Index Scan" or (node.get("Relation Name") == table and kind.endswith("Scan")):
            # A bitmap heap scan is told by the index below it.
            if kind != "Bitmap Heap Scan":
                scans.add(str(node.get("Index Name", kind)))
            # Averages over the loops, and the engine's own recheck of dead entries is in the buffers.
            rows = sum(float(node.get(part, 0)) for part in ("Actual Rows", "Rows Removed by Filter"))
            walked += round(rows * float(node.get("Actual Loops", 0)))
    buffers = sum(int(tree.get(part, 0)) for part in ("Shared Hit Blocks", "Shared Read Blocks"))
    return Plan(frozenset(scans), buffers, walked, tree)


def nodes(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every node of a plan."""
    yield tree
    for child in tree.get("Plans", ()):
        yield from nodes(child)


def _lines(tree: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    reported = [str(tree["Node Type"])]
    reported += [
        f"{part}: {tree[part]}" for part in ("Index Name", "Relation Name", "Index Cond", "Filter") if part in tree
    ]
    reported.append(f"rows {tree.get('Actual Rows')} × {tree.get('Actual Loops')}")
    reported.append(f"buffers {tree.get('Shared Hit Blocks', 0) + tree.get('Shared Read Blocks', 0)}")
    yield "  " * depth + ", ".join(reported)
    for child in tree.get("Plans", ()):
        yield from _lines(child, depth + 1)
