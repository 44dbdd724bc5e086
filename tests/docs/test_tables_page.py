"""The page of tables lists exactly the columns and indexes that the code describes."""

import pytest
from sqlalchemy import MetaData, Table

from faststream_outbox import make_dlq_table, make_outbox_table
from tests.docs.pages import names, rows

PAGE = "docs/tables.md"


@pytest.mark.parametrize(
    ("table", "heading"),
    [
        pytest.param(make_outbox_table(MetaData()), "## Columns of the outbox", id="outbox"),
        pytest.param(make_dlq_table(MetaData()), "## Columns of the dead letters", id="dead letters"),
    ],
)
def test_page_lists_every_column(table: Table, heading: str) -> None:
    printed = [name for row in rows(PAGE, heading) for name in names(row[0])]
    assert sorted(printed) == sorted(table.columns.keys())


def test_page_lists_every_index_with_its_columns() -> None:
    tables = make_outbox_table(MetaData()), make_dlq_table(MetaData())
    in_code = {
        str(index.name): [column.name for column in index.columns] for table in tables for index in table.indexes
    }
    assert {names(name)[0]: names(columns) for name, columns, _ in rows(PAGE, "## Indexes")} == in_code
