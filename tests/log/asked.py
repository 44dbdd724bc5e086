"""What a log asks of PostgreSQL: statements as they are sent, and the rows that each of them looks at."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.log import Outbox
from tests.sql.plans import nodes


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement with the values that it was sent with."""

    statement: Statement
    values: Mapping[str, Any]


@contextmanager
def recorded(outbox: Outbox) -> Generator[list[Asked]]:
    """Statements that the log sends on its own connections meanwhile."""
    asked: list[Asked] = []
    with pytest.MonkeyPatch.context() as patch:
        for connection in (outbox.client.connection, outbox.client._tick_connection):
            fetch, fetch_each = connection.fetch, connection.fetch_each

            async def one(statement: Statement, values: Mapping[str, Any], fetch: Any = fetch) -> Any:
                asked.append(Asked(statement, dict(values)))
                return await fetch(statement, values)

            async def each(steps: Any, fetch_each: Any = fetch_each) -> Any:
                asked.extend(Asked(statement, dict(values)) for statement, values in steps)
                return await fetch_each(steps)

            patch.setattr(connection, "fetch", one)
            patch.setattr(connection, "fetch_each", each)
        yield asked


def rows_looked_at(connection: psycopg.Connection[Any], asked: Asked) -> int:
    """Rows of all tables that a statement reads, kept or not, on a connection set up as the log's own are."""
    for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
        connection.execute(f"set {setting} = off")
    connection.commit()
    try:
        sql = f"explain (analyze, timing off, format json) {asked.statement.pyformat}"
        row = connection.execute(sql.encode(), asked.values).fetchone()
        assert row is not None
    finally:
        connection.rollback()
    looked = 0.0
    for node in nodes(row[0][0]["Plan"]):
        if "Relation Name" in node:
            rows = float(node["Actual Rows"]) + float(node.get("Rows Removed by Filter", 0))
            looked += rows * float(node["Actual Loops"])
    return round(looked)
