"""The command line behind a pooler, by its address alone."""

import pytest
from sqlalchemy import URL

from faststream_outbox._internal.cli.place import Place, Where, find, make_engine
from faststream_outbox.queue import DeadLetters, OutboxClient, Selection
from tests.cli.conftest import stage
from tests.cli.stage import Stage

__all__ = ["stage"]


@pytest.mark.pgbouncer
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_finds_tables_and_replays(driver: str, pooler: URL, stage: Stage) -> None:
    stage.sql("truncate outbox, outbox_dlq")
    stage.bury(3)
    engine = make_engine(pooler.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False))
    try:
        # Twice: a statement that was left on a server connection would be in the way.
        for _ in range(2):
            async with engine.connect() as connection:
                place = await find(Place(engine), Where(), connection)
        tables = place.tables
        assert tables.table is not None
        letters = DeadLetters(OutboxClient(engine, tables.table, dlq_table=tables.dlq_table))
        assert (await letters.replay(Selection(everything=True))).replayed == 3
    finally:
        await engine.dispose()
