"""A broker on PostgreSQL, a session, and a look at the table from outside."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import URL, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker, make_outbox_table
from tests.contract.outside import App, Outside
from tests.contract.shop import Shop, open_shop
from tests.publish.conftest import statements

__all__ = ["statements"]


@pytest.fixture
def unconnected() -> OutboxBroker:
    """A broker without a database."""
    return OutboxBroker(outbox_table=make_outbox_table(MetaData()))


@pytest.fixture
async def broker(engine: AsyncEngine, table: Table) -> AsyncIterator[OutboxBroker]:
    """A broker with all defaults, not started."""
    broker = OutboxBroker(engine, outbox_table=table)
    yield broker
    await broker.stop()


@pytest.fixture
async def session(engine: AsyncEngine, table: Table) -> AsyncIterator[AsyncSession]:
    """A session with nothing begun."""
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session


@pytest.fixture
def outside(database_url: URL, table: Table) -> Iterator[Outside]:
    """Somebody else's connection."""
    dsn = database_url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        yield Outside(connection)


@pytest.fixture
async def app(engine: AsyncEngine, table: Table, session: AsyncSession, outside: Outside) -> AsyncIterator[App]:
    """A broker, a session, and the look from outside."""
    app = App(engine, table, session, outside.connection)
    yield app
    for broker in app.brokers:
        await broker.stop()


@pytest.fixture
async def shop(engine: AsyncEngine) -> AsyncIterator[Shop]:
    """What the snippets about the ordered log presuppose."""
    async with open_shop(engine) as shop:
        yield shop
