"""What is said of read replicas: they answer questions, and whatever writes is refused there with a reason."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import Envelope, make_outbox_table
from faststream_outbox._internal.events.types import StatementFailed
from faststream_outbox.errors import ConnectionUnusable
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.overview import Overview, fetch_unprocessed
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from faststream_outbox.testing.postgres import PostgresServer
from tests.docs.pages import parts
from tests.waiting import eventually

pytestmark = pytest.mark.slow

metadata = MetaData()
outbox = make_outbox_table(metadata)
log_tables = make_log_tables(metadata, "outbox_log")
ONE = Envelope(queue="orders", body=b"1")


class Pair(NamedTuple):
    primary: AsyncEngine
    standby: AsyncEngine

    async def has_followed(self) -> None:
        """Wait until the standby has whatever was committed until now."""
        async with self.primary.connect() as connection:
            written = await connection.scalar(text("select pg_current_wal_insert_lsn()::text"))

        async def has_all() -> bool:
            async with self.standby.connect() as connection:
                return bool(await connection.scalar(text(f"select pg_last_wal_replay_lsn() >= '{written}'::pg_lsn")))

        await eventually(has_all)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server, and one that follows it, until a test promotes it."""
    with PostgresServer.start() as primary, tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        primary.run("pg_basebackup", "-D", directory / "data", "-R", "--checkpoint=fast")
        with PostgresServer.start(directory=directory) as standby:
            yield primary, standby


@pytest.fixture
async def pair(servers: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[Pair]:
    """Fresh tables on both."""
    pair = Pair(*(create_async_engine(server.dsn()) for server in servers))
    async with pair.primary.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield pair
    async with pair.primary.begin() as connection:
        await connection.run_sync(metadata.drop_all)
    for engine in pair:
        await engine.dispose()


async def test_a_replica_tells_the_gaps_but_not_whose_they_are(pair: Pair) -> None:
    overview = Overview(pair.standby, log_tables=log_tables)
    async with Outbox(pair.primary, tables=log_tables) as log, pair.primary.connect() as publisher:
        await log.publish(publisher, OutboxMessage("orders/1", 1))
        async with pair.primary.begin() as connection:
            await log.publish(connection, OutboxMessage("orders/1", 2))
        await log.lag()
        await pair.has_followed()
        (gap,) = await overview.gaps()
        assert (gap.first_position, gap.last_position, gap.backend_pid, gap.owners) == (1, 1, None, ())
        await publisher.rollback()
    await overview.close()


# The last: it promotes the standby.
async def test_a_replica_answers_questions_and_refuses_work(pair: Pair) -> None:
    async with Outbox(pair.primary, tables=log_tables) as log:
        async with pair.primary.begin() as connection:
            await publish(connection, outbox, ONE)
            await log.publish(connection, OutboxMessage("orders/1", 1))
            await log.seek(connection, "earliest", "billing", create=True)
        await log.lag("billing")
    await pair.has_followed()
    async with pair.standby.connect() as connection:
        assert [message.payload for message in await fetch_unprocessed(connection, outbox)] == [b"1"]
        for part in parts("docs/operations.md"):
            if part.language == "sql":
                await connection.exec_driver_sql(part.code)
        with pytest.raises(DBAPIError, match="read-only"):
            await publish(connection, outbox, ONE)
    overview = Overview(pair.standby, table=outbox, log_tables=log_tables, timeout=30)
    assert [status.ready for status in await overview.queues()] == [1]
    async with pair.primary.begin() as connection:
        token = "3f2a9c1b-0000-4000-8000-000000000000"
        await connection.execute(text(f"update outbox set acquired_token = '{token}', acquired_at = now()"))

    async def is_leased() -> bool:
        found = await overview.message(1)
        return found is not None and found.state == "leased" and "only the primary knows" in found.why

    await eventually(is_leased)
    assert [process.roles for process in await overview.processes()] == [("overview",)]
    assert [(await overview.rates()).published for _ in range(2)] == [None, None]
    assert [(group.group, group.messages) for group in await overview.groups()] == [("billing", 1)]
    assert (await overview.blocked_keys("billing"), await overview.gaps()) == ([], [])
    await overview.close()
    async with pair.primary.begin() as connection:
        await connection.execute(text("update outbox set acquired_token = null, acquired_at = null"))
    async with Outbox(pair.standby, tables=log_tables) as replica:
        for ask in (lambda: replica.lag("billing"), replica.parked.list, replica.clean):
            with pytest.raises(ConnectionUnusable, match="Point it at the primary"):
                await ask()

    handled, refused = list[bytes](), list[StatementFailed]()

    async def handle(claim: Claim) -> Outcome:
        handled.append(claim.payload)
        return DONE

    client = OutboxClient(pair.standby, outbox)
    client.events.subscribe(refused.append, StatementFailed)
    worker = Worker(pair.standby, outbox, "orders", handle, client=client)
    await worker.start()
    await eventually(lambda: any("Point it at the primary" in str(event.error) for event in refused))
    assert handled == []
    async with pair.standby.connect() as connection:
        await connection.execute(text("select pg_promote()"))
    await eventually(lambda: handled == [b"1"], message="whoever waits on a standby goes on when it is promoted")
    await worker.stop()
