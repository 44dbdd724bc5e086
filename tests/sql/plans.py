"""Plans of the library's own statements: asked for as a long-lived connection would have them, and read.

`explained` prepares a statement as it is sent, runs it under EXPLAIN ANALYZE with a custom or a generic plan, and rolls
back. `Plans` reads what the plan says about one table, `million` what it says about all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from faststream_outbox._internal.sql.statements import Statement, statements
from faststream_outbox.schema import Names

PlanMode = Literal["force_custom_plan", "force_generic_plan"]
MODES: tuple[PlanMode, ...] = ("force_custom_plan", "force_generic_plan")
WIRE = ("enable_seqscan", "enable_bitmapscan", "jit")
"""What the library switches off on its own connections."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a statement did."""

    scans: frozenset[str]
    """Names of the indexes used; the kind of scan where no index was."""
    buffers: int
    """Pages of all relations, counted each time they were looked at."""
    walked: int
    """Rows that were looked at, kept or not."""
    tree: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{sorted(self.scans)}, {self.walked} rows, {self.buffers} buffers\n" + "\n".join(_lines(self.tree))


def explained(
    connection: psycopg.Connection[Any],
    statement: Statement,
    values: Mapping[str, Any],
    mode: PlanMode,
    off: Sequence[str] = (),
) -> Mapping[str, Any]:
    """The plan of a statement with these values, run on a connection that is in no transaction, and rolled back."""
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"prepare asked as {statement.dollar}".replace("%", "%%"))
        cursor.execute("begin")
        try:
            for setting in off:
                cursor.execute(f"set local {setting} = off")
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
    return row[0][0]["Plan"]


@dataclass(frozen=True, slots=True)
class Plans:
    """Asks for plans on one connection, which must not be in a transaction."""

    connection: psycopg.Connection[Any]
    names: Names

    def of(self, file: str, name: str, values: Mapping[str, Any], mode: PlanMode, off: Sequence[str] = ()) -> Plan:
        """What a named statement did to the table."""
        tree = explained(self.connection, statements(file, self.names)[name], values, mode, off)
        scans, walked = set[str](), 0
        for node in nodes(tree):
            kind = str(node["Node Type"])
            if kind == "Bitmap Index Scan" or (node.get("Relation Name") == self.names.table and kind.endswith("Scan")):
                # A bitmap heap scan is told by the index below it.
                if kind != "Bitmap Heap Scan":
                    scans.add(str(node.get("Index Name", kind)))
                walked += rows_of(node)
        return Plan(frozenset(scans), buffers_of(tree), walked, tree)


def of_all(tree: Mapping[str, Any]) -> Plan:
    """What a statement did to all tables."""
    scans, walked = set[str](), 0
    for node in nodes(tree):
        if "Relation Name" in node and str(node["Node Type"]).endswith("Scan") and float(node["Actual Loops"]):
            scans.add(str(node.get("Index Name", f"{node['Node Type']} of {node['Relation Name']}")))
            walked += rows_of(node)
    return Plan(frozenset(scans), buffers_of(tree), walked, tree)


def rows_of(node: Mapping[str, Any]) -> int:
    """Rows that a scan looked at, which are averages over its loops; dead entries are in the buffers alone."""
    rows = sum(float(node.get(part, 0)) for part in ("Actual Rows", "Rows Removed by Filter"))
    return round(rows * float(node.get("Actual Loops", 0)))


def buffers_of(tree: Mapping[str, Any]) -> int:
    return sum(int(tree.get(part, 0)) for part in ("Shared Hit Blocks", "Shared Read Blocks"))


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
    reported.append(f"buffers {buffers_of(tree)}")
    yield "  " * depth + ", ".join(reported)
    for child in tree.get("Plans", ()):
        yield from _lines(child, depth + 1)
