"""The ways to publish, and a look at the table from outside."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import URL, Table, event
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.publish.ways import KINDS, WAYS, Way, plain

Rows = Callable[[], Sequence[dict[str, Any]]]


@pytest.fixture(params=WAYS)
async def any_way(request: pytest.FixtureRequest, database_url: URL, table: Table) -> AsyncIterator[Way]:
    """Each way to publish in turn, open and not yet begun."""
    async with WAYS[request.param](database_url, table) as way:
        yield way


@pytest.fixture(params=KINDS)
async def way(request: pytest.FixtureRequest, database_url: URL, table: Table) -> AsyncIterator[Way]:
    """A way to publish of each kind in turn, open and not yet begun."""
    async with WAYS[request.param](database_url, table) as way:
        yield way


@pytest.fixture
def rows(database_url: URL, table: Table) -> Iterator[Rows]:
    """What another connection sees in the table now, by id."""
    with psycopg.connect(plain(database_url), autocommit=True, row_factory=dict_row) as connection:
        yield lambda: connection.execute("select * from outbox order by id").fetchall()


@pytest.fixture
def statements(engine: AsyncEngine) -> Iterator[list[str]]:
    """The SQL that `engine` has sent since."""
    sent: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", record)
    yield sent
    event.remove(engine.sync_engine, "before_cursor_execute", record)
