"""Publishing through SQLAlchemy: nothing is flushed, begun or committed, and its settings are honoured."""

from collections.abc import Iterator
from itertools import product

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, registry, scoped_session, sessionmaker

from faststream_outbox.publish import publish, publish_sync
from faststream_outbox.schema import make_outbox_table
from tests.cases import case
from tests.publish.conftest import Rows
from tests.publish.ways import message
from tests.tables import existing


def bodies(rows: Rows) -> list[bytes]:
    return [bytes(row["payload"]) for row in rows()]


class Order:
    """An application's own object."""

    def __init__(self, name: str | None) -> None:
        self.name = name


@pytest.fixture
def orders(metadata: MetaData, sync_engine: Engine) -> Iterator[Table]:
    orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("name", String, nullable=False))
    mapping = registry(metadata=metadata)
    mapping.map_imperatively(Order, orders)
    with existing(orders, sync_engine):
        yield orders
    mapping.dispose()


async def test_pending_objects_are_not_flushed(
    engine: AsyncEngine, table: Table, orders: Table, rows: Rows, statements: list[str]
) -> None:
    broken = Order(None)
    async with AsyncSession(engine) as session:
        session.add(broken)
        await publish(session, table, message())
        assert broken in session.new
        assert [statement.split()[:3] for statement in statements] == [["insert", "into", "outbox"]]
        broken.name = "repaired"
        await session.commit()
    assert len(rows()) == 1


def test_pending_objects_are_not_flushed_by_a_sync_session(
    sync_engine: Engine, table: Table, orders: Table, rows: Rows
) -> None:
    broken = Order(None)
    with Session(sync_engine) as session:
        session.add(broken)
        publish_sync(session, table, message())
        assert broken in session.new
        session.expunge(broken)
        session.commit()
    assert len(rows()) == 1


async def test_call_is_one_statement_whatever_the_number_of_messages(
    engine: AsyncEngine, table: Table, rows: Rows, statements: list[str]
) -> None:
    for count, has_timers in product((1, 2, 1000), (False, True)):
        envelopes = [message(timer_id=f"{count} {number}" if has_timers else None) for number in range(count)]
        async with engine.begin() as connection:
            statements.clear()
            with case((count, has_timers)):
                assert len(await publish(connection, table, *envelopes)) == count
                assert len(statements) == 1
    assert len(rows()) == 2 * 1003


async def test_session_with_several_binds_uses_that_of_the_table(
    engine: AsyncEngine, psycopg_engine: AsyncEngine, table: Table, orders: Table, rows: Rows
) -> None:
    async with AsyncSession(binds={table: engine, orders: psycopg_engine}) as session:
        await publish(session, table, message(b"one"))
        await publish(session, table, message(b"two"), message(b"three"))
        await publish(session, table, message(b"four", timer_id="t"))
        await session.commit()
    assert bodies(rows) == [b"one", b"two", b"three", b"four"]


def test_sync_session_with_several_binds_uses_that_of_the_table(
    sync_engine: Engine, table: Table, orders: Table, rows: Rows
) -> None:
    unreachable = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    with Session(binds={table: sync_engine, orders: unreachable}) as session:
        publish_sync(session, table, message(b"one"))
        publish_sync(session, table, message(b"two"), message(b"three"))
        session.commit()
    assert bodies(rows) == [b"one", b"two", b"three"]


@pytest.fixture
def tenant(sync_engine: Engine) -> Iterator[str]:
    """A schema with an awkward name and an outbox in it."""
    name = 'Tenant "7"'
    quoted = sync_engine.dialect.identifier_preparer.quote(name)
    with sync_engine.begin() as connection:
        connection.execute(text(f"create schema {quoted}"))
    with existing(make_outbox_table(MetaData(schema=name)), sync_engine):
        yield name
    with sync_engine.begin() as connection:
        connection.execute(text(f"drop schema {quoted}"))


async def test_schema_translate_map_of_the_session_is_used(engine: AsyncEngine, table: Table, tenant: str) -> None:
    async with AsyncSession(engine) as session:
        await session.connection(execution_options={"schema_translate_map": {None: tenant}})
        await publish(session, table, message())
        await session.commit()
    async with engine.connect() as connection:
        there = make_outbox_table(MetaData(schema=tenant))
        assert (await connection.execute(there.select())).one().queue == "orders"


async def test_scoped_sessions_are_opened_up(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    await publish(scoped, table, message())
    assert rows() == []
    await scoped.commit()
    assert len(rows()) == 1
    await scoped.remove()


def test_scoped_sync_sessions_are_opened_up(sync_engine: Engine, table: Table, rows: Rows) -> None:
    scoped = scoped_session(sessionmaker(sync_engine))
    publish_sync(scoped, table, message())
    assert rows() == []
    scoped.commit()
    assert len(rows()) == 1
    scoped.remove()


async def test_caller_in_another_isolation_level_publishes(engine: AsyncEngine, table: Table, rows: Rows) -> None:
    async with AsyncSession(engine.execution_options(isolation_level="SERIALIZABLE")) as session, session.begin():
        await publish(session, table, message())
        level = await session.scalar(text("show transaction_isolation"))
    assert level == "serializable"
    assert len(rows()) == 1


async def test_failed_insert_is_raised_and_not_retried(engine: AsyncEngine, statements: list[str]) -> None:
    missing = make_outbox_table(MetaData(), "missing")
    async with engine.connect() as connection:
        with pytest.raises(Exception, match="does not exist"):
            await publish(connection, missing, message())
    assert len(statements) == 1
