"""The migration from 0.19, as the page has it: what it locks, for whom it waits, and that it may be interrupted."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Engine, MetaData, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.migration import AFTER, BEFORE, BOTH, former_tables, migrate
from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from tests.publish.ways import plain
from tests.waiting import eventually

pytestmark = pytest.mark.slow

ROWS = 2500
SLICE = 1000
PUBLISH = {
    "outbox": "insert into outbox (queue, payload) values ('orders', '1')",
    "outbox_dlq": "insert into outbox_dlq (original_id, queue, payload, deliveries_count, created_at, failure_reason)"
    " values (7, 'orders', '2', 3, now(), 'retry_terminal')",
}
HELD = """
    select relation::regclass::text, mode from pg_locks
    where pid = pg_backend_pid() and relation in ('outbox'::regclass, 'outbox_dlq'::regclass)
"""


@pytest.fixture
def database(database_url: URL) -> Iterator[str]:
    """The tables of 0.19, with messages and dead letters."""
    dsn = plain(database_url)
    with psycopg.connect(dsn, autocommit=True) as connection:
        _make(connection)
        yield dsn
        connection.execute("drop table outbox, outbox_dlq")


def _make(connection: psycopg.Connection[Any]) -> None:
    connection.execute("drop table if exists outbox, outbox_dlq")
    connection.execute(former_tables().encode())
    for insert in PUBLISH.values():
        values = insert.replace("values (", "select ")[:-1]
        connection.execute(f"{values} from generate_series(1, {ROWS})".encode())


@pytest.fixture
def migrator(database_url: URL) -> Iterator[Engine]:
    engine = create_engine(database_url.set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


class Interrupted(Exception):
    """The migration's process ends."""


@dataclass
class Seen:
    """What a statement of the migration held when it was done, and whether a publisher got through meanwhile."""

    statement: str
    held: set[tuple[str, str]] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)

    @property
    def strong(self) -> set[str]:
        return {table for table, mode in self.held if mode in ("AccessExclusiveLock", "ExclusiveLock", "ShareLock")}


def _replayed(database: str, statements: list[tuple[str, Any]], notices: list[str]) -> list[Seen]:
    """Run the statements again on fresh tables, each in a transaction that stays open while others publish."""
    seen: list[Seen] = []
    with (
        psycopg.connect(database, autocommit=True) as connection,
        psycopg.connect(database, autocommit=True) as publisher,
    ):
        _make(connection)
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute("set client_min_messages = debug1")
        publisher.execute("set lock_timeout = '50ms'")
        for statement, values in statements:
            one = Seen(" ".join(statement.split()))
            seen.append(one)
            if "CONCURRENTLY" in statement:
                connection.execute(statement.encode(), values)
                continue
            with connection.transaction():
                connection.execute(statement.encode(), values)
                one.held = set(connection.execute(HELD).fetchall())
                for table, insert in PUBLISH.items():
                    try:
                        publisher.execute(insert.encode())
                    except psycopg.errors.LockNotAvailable:
                        one.blocked.add(table)
    return seen


def test_what_each_statement_locks(database: str, migrator: Engine) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""
            create function refuse() returns event_trigger language plpgsql as
            $$ begin raise exception 'a table is rewritten'; end $$
        """)
        connection.execute("create event trigger no_rewrite on table_rewrite execute function refuse()")
        statements: list[tuple[str, Any]] = []
        event.listen(migrator, "before_cursor_execute", lambda *sent: statements.append((sent[2], sent[3])))
        try:
            migrate(migrator, BEFORE)
            notices: list[str] = []
            seen = _replayed(database, statements, notices)
        finally:
            connection.execute("drop event trigger no_rewrite")
            connection.execute("drop function refuse")
    for one in seen:
        # One table at a time, and only by what looks at no row.
        assert len(one.strong) <= 1, one
        assert one.blocked == one.strong, one
        if one.strong:
            assert re.match(r"ALTER TABLE \w+ (ADD|DROP|ALTER)", one.statement), one
    slices = [one for one in seen if "SKIP LOCKED" in one.statement]
    assert len(slices) >= 2 * ROWS // SLICE
    assert not any(one.strong for one in slices)
    enough = [notice for notice in notices if "sufficient to prove that it does not contain nulls" in notice]
    assert [re.findall(r'"(\w+)\.message_id"', notice) for notice in enough] == [["outbox"], ["outbox_dlq"]]


async def test_it_waits_for_a_publisher_and_nobody_waits_for_it(database: str, migrator: Engine) -> None:
    refused = threading.Event()
    event.listen(migrator, "handle_error", lambda context: refused.set())
    with (
        psycopg.connect(database) as holder,
        psycopg.connect(database, autocommit=True) as publisher,
    ):
        holder.execute(PUBLISH["outbox"])
        holder.execute("select 1 from outbox_dlq limit 1")
        migration = threading.Thread(target=migrate, args=(migrator, BEFORE))
        migration.start()
        try:
            await eventually(refused.is_set)
            for _ in range(3):
                publisher.execute(PUBLISH["outbox"])
                publisher.execute(PUBLISH["outbox_dlq"])
        finally:
            holder.commit()
            migration.join(120)
        assert not migration.is_alive()
        for table in PUBLISH:
            found = publisher.execute(f"select count(*), count(message_id), count(distinct message_id) from {table}")
            assert set(found.fetchall()[0]) == {ROWS + (4 if table == "outbox" else 3)}


async def test_it_may_be_interrupted_and_run_again(database: str, migrator: Engine, engine: AsyncEngine) -> None:
    ends: list[str] = []

    def give_up(*sent: Any) -> None:
        if ends[-1] in sent[2]:
            raise Interrupted

    event.listen(migrator, "before_cursor_execute", give_up)
    for end in ("ADD COLUMN IF NOT EXISTS error_type", "VALIDATE", "SET NOT NULL", "CONCURRENTLY outbox_key_idx"):
        ends.append(end)
        with pytest.raises(Interrupted):
            migrate(migrator, BEFORE)
    event.remove(migrator, "before_cursor_execute", give_up)
    for step in (BEFORE, BEFORE, AFTER, AFTER):
        migrate(migrator, step)
    metadata = MetaData()
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    await OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq).validate_schema()


# What 0.19 has and these had not, by what the versions on PyPI create.
OF_0_10 = """
    drop index outbox_pending_idx, outbox_leased_idx;
    create index outbox_pending_idx on outbox (queue, next_attempt_at) where acquired_token is null;
    create index outbox_lease_idx on outbox (queue, acquired_at) where acquired_token is not null;
"""
OF_0_6 = f"{OF_0_10} alter table outbox drop constraint outbox_lease_ck; alter table outbox_dlq drop column timer_id;"
OF_0_4 = f"{OF_0_6} drop table outbox_dlq;"
OF_0_3 = f"{OF_0_4} drop index outbox_lease_idx;"


@pytest.mark.parametrize("before", [OF_0_10, OF_0_6, OF_0_4, OF_0_3], ids=["0.10", "0.6", "0.4", "0.3"])
async def test_older_tables_are_migrated_too(before: str, database: str, migrator: Engine, engine: AsyncEngine) -> None:
    metadata = MetaData()
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(before.encode())
        has_letters = connection.execute("select to_regclass('outbox_dlq')").fetchall() != [(None,)]
        for step in (BEFORE, AFTER):
            migrate(migrator, step, BOTH if has_letters else ("outbox",))
        metadata.create_all(migrator)
        await OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq).validate_schema()
        assert connection.execute("select count(*) from outbox").fetchall() == [(ROWS,)]


async def test_tables_that_lack_columns_are_mended_by_what_the_check_says(database: str, engine: AsyncEngine) -> None:
    metadata = MetaData()
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("alter table outbox drop column timer_id, drop column deliveries_count")
        connection.execute("alter table outbox drop column acquired_token")
        with pytest.raises(Exception, match="outbox") as differences:
            await broker.validate_schema()
        for line in str(differences.value).splitlines():
            if line.strip().endswith(";"):
                connection.execute(line.encode())
        await broker.validate_schema()
        assert connection.execute("select count(*) from outbox").fetchall() == [(ROWS,)]
