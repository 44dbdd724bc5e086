"""The table of receipts, checked against the database."""

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import make_inbox_table
from faststream_outbox._internal.schema.check import find_inbox_differences, validate_inbox_schema
from faststream_outbox.errors import InvalidOption, InvalidOptionType, SchemaMismatch

BREAKS = {
    "drop index inbox_received_idx": "inbox_received_idx",
    "alter table inbox drop constraint inbox_pkey": "primary key",
    "alter table inbox drop column response": "response",
    "alter table inbox alter received_at drop default": "received_at",
}


@pytest.mark.parametrize("breaking", BREAKS)
async def test_each_difference_is_found_and_repaired_by_what_is_printed(engine: AsyncEngine, breaking: str) -> None:
    table: Table = make_inbox_table(MetaData())
    async with engine.connect() as connection:
        await connection.run_sync(table.create)
        await connection.execute(text(breaking))
        with pytest.raises(SchemaMismatch, match=BREAKS[breaking]):
            await validate_inbox_schema(connection, table)
        for difference in await find_inbox_differences(connection, table):
            # CONCURRENTLY is for who goes on writing meanwhile.
            await connection.execute(text(difference.fix.replace("CONCURRENTLY ", "")))
        assert await find_inbox_differences(connection, table) == []
        await connection.rollback()


async def test_missing_table_is_created_by_what_is_printed(engine: AsyncEngine) -> None:
    table = make_inbox_table(MetaData(), "my inbox")
    with pytest.raises(SchemaMismatch, match="CREATE TABLE"):
        await validate_inbox_schema(engine, table)


def test_names_are_checked() -> None:
    with pytest.raises(InvalidOption, match="too long"):
        make_inbox_table(MetaData(), "x" * 60)
    with pytest.raises(InvalidOptionType, match="make_inbox_table"):
        make_inbox_table("inbox")  # type: ignore[arg-type]
