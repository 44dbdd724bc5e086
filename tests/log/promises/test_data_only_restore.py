"""The data of a log, restored into tables that `setup()` has made before: nothing stalls, nothing is skipped."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox.log import Outbox
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.clusters import DATABASE, emptied, start
from tests.log.opened import Collector, delivered, drain, put

pytestmark = pytest.mark.slow

COPY = "shop_copy"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with start() as server:
        yield server


@pytest.fixture
async def old(server: PostgresServer) -> AsyncIterator[Outbox]:
    """The log that is dumped."""
    outbox = Outbox(create_async_engine(emptied(server).dsn(DATABASE)))
    await outbox.setup()
    yield outbox
    await outbox.cleanup()
    await outbox.engine.dispose()


@pytest.fixture
async def new(server: PostgresServer) -> AsyncIterator[Outbox]:
    """The log that the data is restored into, in a database of its own."""
    server.create_database(COPY)
    outbox = Outbox(create_async_engine(server.dsn(COPY)))
    await outbox.setup()
    yield outbox
    await outbox.cleanup()
    await outbox.engine.dispose()
    server.run("dropdb", "--force", COPY)


def carry_data(server: PostgresServer, file: Path, *, stop_at_errors: bool) -> None:
    """Dump the rows alone, and restore them."""
    server.run("pg_dump", "--data-only", "--no-owner", "-f", file, DATABASE)
    stop = "1" if stop_at_errors else "0"
    server.run("psql", "-X", "-q", "-v", f"ON_ERROR_STOP={stop}", "-d", COPY, "-f", file)


async def half_read(outbox: Outbox) -> None:
    """Ten messages in ten ticks, of which a group has read six; one more in no tick."""
    for number in range(10):
        await put(outbox, "k", number)
        await outbox.client.sequencer.catch_up()
    await outbox.dispatch(Collector(), "g", batch_size=6)
    await put(outbox, "k", 10)


async def test_data_is_restored_after_setup_without_an_error(
    server: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    await half_read(old)
    carry_data(server, tmp_path / "data.sql", stop_at_errors=True)
    await put(new, "k", "new")
    assert await delivered(new, "g") == [6, 7, 8, 9, 10, "new"]


async def test_data_is_restored_although_the_log_was_in_use_already(
    server: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    """The head of the dump is refused, because there is one: it must not begin to count anew."""
    await half_read(old)
    await new.client.sequencer.catch_up()
    carry_data(server, tmp_path / "data.sql", stop_at_errors=False)
    await put(new, "k", "new")
    assert await delivered(new, "g") == [6, 7, 8, 9, 10, "new"]


async def test_data_without_its_first_ticks_is_restored_although_the_log_was_in_use(
    server: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    """Ticks that retention has deleted leave their numbers free: new ones must not lie behind every cursor."""
    await half_read(old)
    await drain(old, Collector(), "g")
    await old.clean(older_than=timedelta(0))
    await new.client.sequencer.catch_up()
    carry_data(server, tmp_path / "data.sql", stop_at_errors=False)
    await put(new, "k", "new")
    assert await delivered(new, "g") == ["new"]
