"""A log of a million messages, sequenced, with a group that is half-way and keys that wait; and what may be read of it.

Asked as a long-lived connection of the library's would ask. Used by the guards of plans that are about the log.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import ge
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from sqlalchemy import URL, MetaData, create_engine

from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.log import make_log_tables
from tests.publish.ways import plain
from tests.sql.plans import WIRE, Plan, PlanMode, explained, of_all

MESSAGES = 1_000_000
PER_TICK = 1000
GROUPS = 51
SPANS = 16
ASIDES = 20_000
ME = UUID("00000000-0000-4000-8000-00000000beef")
MIDDLE = MESSAGES // 2
STAMP = datetime(2026, 1, 1, tzinfo=UTC)
FILLING = (
    "insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id) "
    "select n, 'orders/' || n % 5000, n % 256, '{\"n\": 1}', '{}', now(), 1 "
    f"from generate_series(1, {MESSAGES}) n",
    f"insert into {{ticks}} (tick, lows, highs, count, at) select n, array[(n - 1) * {PER_TICK} + 1], "
    f"array[n * {PER_TICK}], {PER_TICK}, '{STAMP}' from generate_series(1, {MESSAGES // PER_TICK}) n",
    "insert into {head_table} (id, high, tick, drawn, origin) "
    f"values (1, {MESSAGES}, {MESSAGES // PER_TICK}, 0, 'here:' || pg_relation_filenode('{{sequence_name}}'))",
    f"select setval('{{sequence_name}}', {MESSAGES})",
    "insert into {offsets} (consumer_group, uri, lo, hi, tick, position, epoch, owner, until) "
    "select 'g' || case when g = 0 then '' else g::text end, '', s * 16, s * 16 + 15, "
    f"{MIDDLE // PER_TICK}, {MIDDLE}, 1, '{ME}', "
    f"now() + interval '1 hour' from generate_series(0, {GROUPS - 1}) g, generate_series(0, {SPANS - 1}) s",
    "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state, due) "
    f"select g.name, '', n, n / {PER_TICK} + 1, n % 256, 'orders/' || n % 5000, "
    f"case when n <= 5000 then 'retry' else 'deferred' end, now() "
    f"from unnest(array['g', 'h', 'i']) g (name), generate_series(1, {ASIDES}) n",
    "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
    f"select 'parked', '', n, n / {PER_TICK} + 1, 1, 'k', "
    f"case when n = {ASIDES} then 'retry' else 'parked' end from generate_series(1, {ASIDES}) n",
    "analyze",
)


class Case(NamedTuple):
    """A statement with its values, the most that it may read, and how its scans compare with which indexes."""

    statement: str
    values: Mapping[str, Any]
    rows: float = float("inf")
    pages: float = float("inf")
    scans: tuple[Callable[[Any, Any], bool], set[str]] = (ge, set())


class Million:
    """The log, on a connection that is in no transaction."""

    def __init__(self, connection: psycopg.Connection[Any], names: LogNames, dsn: str) -> None:
        self._connection = connection
        self.names = names
        self.dsn = dsn

    def execute(self, statement: str) -> None:
        for place, name in self.names.places().items():
            statement = statement.replace(f"{{{place}}}", name)
        self._connection.execute(statement.encode())

    def cost(self, statement: str, values: Mapping[str, Any], mode: PlanMode) -> Plan:
        """What a statement, `file.name`, costs on a connection of the library's, rolled back."""
        file, _, name = statement.partition(".")
        return of_all(explained(self._connection, statements(file, self.names)[name], values, mode, WIRE))

    def check(self, case: Case, mode: PlanMode) -> None:
        """Fail where it reads more than it may, or by other indexes."""
        cost = self.cost(case.statement, case.values, mode)
        compare, indexes = case.scans
        assert compare(cost.scans, {f"million_{index}" for index in indexes}), str(cost)
        assert cost.walked <= case.rows, str(cost)
        assert cost.buffers <= case.pages, str(cost)

    @contextmanager
    def sequenced_up_to(self, high: int) -> Iterator[None]:
        """As if nobody had made ticks beyond."""
        self.execute(f"update {{head_table}} set high = {high}")
        try:
            yield
        finally:
            self.execute(f"update {{head_table}} set high = {MESSAGES}")


@contextmanager
def million_messages(url: URL) -> Iterator[Million]:
    tables = make_log_tables(MetaData(), "million", "million_offsets")
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    tables.log.metadata.create_all(engine)
    try:
        with psycopg.connect(plain(url), autocommit=True) as connection:
            million = Million(connection, LogNames.of(tables), plain(url))
            for statement in FILLING:
                million.execute(statement)
            yield million
    finally:
        tables.log.metadata.drop_all(engine)
        engine.dispose()
