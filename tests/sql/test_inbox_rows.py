"""The shapes of the inbox's rows are the columns that the server reports."""

from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.sql.inbox_rows import SHAPES
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.schema import Names, make_inbox_table


@pytest.mark.parametrize(("file", "name"), SHAPES)
async def test_statement_returns_its_shape(engine: AsyncEngine, file: str, name: str) -> None:
    metadata = MetaData()
    statement = statements(file, Names.of(make_inbox_table(metadata)))[name]
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        driver: Any = (await connection.get_raw_connection()).driver_connection
        prepared = await driver.prepare(statement.dollar)
        assert tuple(attribute.name for attribute in prepared.get_attributes()) == SHAPES[file, name]._fields
        await connection.rollback()
