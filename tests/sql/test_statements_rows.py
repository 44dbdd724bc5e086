"""Rows have names: those of the columns that the server reports for their statement."""

from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.schema.log_tables import LogNames, make_log_tables
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import doctor_rows, inbox_rows, log_rows, overview_rows, queue_rows
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from tests.sql.test_statements_sql import ALL, OF_THE_LOG

SHAPES = {**queue_rows.SHAPES, **log_rows.SHAPES, **inbox_rows.SHAPES, **overview_rows.SHAPES, **doctor_rows.SHAPES}


async def test_shapes_are_the_columns_of_their_statements(engine: AsyncEngine) -> None:
    metadata = MetaData()
    names = Names.of(make_outbox_table(metadata), make_dlq_table(metadata))
    log_names = LogNames.of(make_log_tables(metadata, "shaped"))
    inbox_names = Names.of(make_inbox_table(metadata))
    columns: dict[tuple[str, str], tuple[str, ...]] = {}
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        for file, name in ALL:
            of_file = log_names if file in OF_THE_LOG else inbox_names if file == "inbox" else names
            prepared = await driver.prepare(statements(file, of_file)[name].dollar)
            columns[file, name] = tuple(column.name for column in prepared.get_attributes())
        await connection.rollback()
    # A statement of one column has nothing to confuse.
    assert {place: found for place, found in columns.items() if len(found) > 1} == {
        place: shape._fields for place, shape in SHAPES.items()
    }
