"""The fixtures give what their names say."""

import os

import pytest
from sqlalchemy import URL, Column, Engine, Integer, MetaData, Table, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.tables import existing


async def test_engine_is_in_the_database_of_this_worker(driver_engine: AsyncEngine) -> None:
    async with driver_engine.connect() as connection:
        name = (await connection.execute(text("SELECT current_database()"))).scalar_one()
    assert name == f"outbox_test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"


async def test_engines_speak_through_their_drivers(engine: AsyncEngine, psycopg_engine: AsyncEngine) -> None:
    assert (engine.driver, psycopg_engine.driver) == ("asyncpg", "psycopg")


def test_database_url_names_asyncpg(database_url: URL) -> None:
    assert database_url.drivername == "postgresql+asyncpg"


def test_tables_exist_during_the_test(table: Table, dlq_table: Table, sync_engine: Engine) -> None:
    assert {table.name, dlq_table.name} <= set(inspect(sync_engine).get_table_names())


def test_table_is_gone_after_its_time(metadata: MetaData, sync_engine: Engine) -> None:
    with existing(Table("short_lived", metadata, Column("id", Integer)), sync_engine):
        pass
    assert "short_lived" not in inspect(sync_engine).get_table_names()


def test_open_transaction_on_a_table_fails_the_test(metadata: MetaData, sync_engine: Engine) -> None:
    table = Table("held", metadata, Column("id", Integer))
    holder = sync_engine.raw_connection()
    holder.detach()
    failing = pytest.raises(pytest.fail.Exception, match="left a transaction open")
    with failing, existing(table, sync_engine, patience="100ms"):
        holder.cursor().execute("SELECT * FROM held")
    holder.close()
