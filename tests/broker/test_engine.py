"""What the broker takes as its engine: one of yours, which it never closes, or an address, whose engine is its own."""

from typing import Any

import pytest
from sqlalchemy import URL, Engine, Table, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.broker import engine as engines
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from tests.broker.conformance.ways import Seen
from tests.waiting import eventually

NAMED = "an_address"


@pytest.fixture
def address(database_url: URL) -> str:
    named = database_url.set(drivername="postgresql+psycopg", query={"application_name": NAMED})
    return named.render_as_string(hide_password=False)


def _connections(sync_engine: Engine) -> int:
    with sync_engine.connect() as connection:
        asked = text("select count(*) from pg_stat_activity where application_name like :name")
        found: int = connection.execute(asked, {"name": f"%{NAMED}%"}).scalar_one()
        return found


async def _publish(broker: OutboxBroker, body: int) -> None:
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish(body, "orders", session=session)


@pytest.mark.parametrize("as_url", [False, True], ids=["text", "URL"])
async def test_an_address_works(address: str, table: Table, as_url: bool) -> None:
    broker = OutboxBroker(make_url(address) if as_url else address, outbox_table=table, dlq_table=None, logger=None)
    seen = Seen()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    await broker.start()
    await _publish(broker, 1)
    await seen.first(1)
    await broker.stop()


async def test_stop_closes_the_engine_of_an_address_and_start_opens_it_again(
    address: str, table: Table, sync_engine: Engine
) -> None:
    broker = OutboxBroker(address, outbox_table=table, dlq_table=None, logger=None)
    seen = Seen()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    for round_ in range(2):
        await broker.start()
        await _publish(broker, round_)
        await seen.first(round_ + 1)
        assert _connections(sync_engine) > 0
        await broker.stop()
        await eventually(lambda: _connections(sync_engine) == 0, timeout=20)


async def test_leaving_a_broker_that_only_publishes_closes_the_engine_of_an_address(
    address: str, table: Table, sync_engine: Engine
) -> None:
    broker = OutboxBroker(address, outbox_table=table, dlq_table=None, logger=None)
    async with broker:
        await _publish(broker, 1)
        assert _connections(sync_engine) > 0
    await eventually(lambda: _connections(sync_engine) == 0, timeout=20)


async def test_an_address_does_not_connect_before_it_is_used(address: str, table: Table, sync_engine: Engine) -> None:
    OutboxBroker(address, outbox_table=table, dlq_table=None)
    assert _connections(sync_engine) == 0


async def test_engine_that_was_given_is_the_brokers_engine(engine: AsyncEngine, table: Table) -> None:
    assert OutboxBroker(engine, outbox_table=table, dlq_table=None).engine is engine


@pytest.mark.parametrize("name", ["postgresql", "postgres"])
def test_an_address_without_a_driver_gets_one_that_is_installed(table: Table, name: str) -> None:
    broker = OutboxBroker(f"{name}://somebody:secret@localhost:5433/app", outbox_table=table, dlq_table=None)
    expected = make_url("postgresql+asyncpg://somebody:secret@localhost:5433/app")
    assert broker.engine.url == expected


def test_an_address_of_a_hosting_service_keeps_its_encryption(table: Table) -> None:
    broker = OutboxBroker("postgresql://localhost/app?sslmode=require", outbox_table=table, dlq_table=None)
    assert broker.engine.url == make_url("postgresql+asyncpg://localhost/app?ssl=require")


def test_an_address_without_a_driver_says_what_to_install(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match=r"pip install asyncpg.*psycopg\[binary\]"):
        OutboxBroker("postgresql://localhost/app", outbox_table=table, dlq_table=None)


@pytest.mark.parametrize("driver", ["psycopg2", "aiopg", "pg8000"])
def test_an_address_with_a_driver_that_cannot_work_names_those_that_can(table: Table, driver: str) -> None:
    with pytest.raises(InvalidOption, match=rf"{driver}.*postgresql\+asyncpg://.*postgresql\+psycopg://"):
        OutboxBroker(f"postgresql+{driver}://localhost/app", outbox_table=table, dlq_table=None)


@pytest.mark.parametrize("address", ["mysql+aiomysql://localhost/app", "sqlite+aiosqlite://"])
def test_an_address_of_another_database_is_refused(table: Table, address: str) -> None:
    with pytest.raises(InvalidOption, match="PostgreSQL"):
        OutboxBroker(address, outbox_table=table, dlq_table=None)


def test_text_that_is_no_address_is_refused_without_repeating_it(table: Table) -> None:
    with pytest.raises(InvalidOption, match=r"postgresql\+asyncpg://user:password@host/database") as raised:
        OutboxBroker("localhost secret", outbox_table=table, dlq_table=None)
    assert "secret" not in str(raised.value)


def test_a_sync_engine_is_refused(table: Table) -> None:
    given: Any = create_engine("postgresql+psycopg://localhost/app")
    with pytest.raises(InvalidOptionType, match=r"sync Engine.*create_async_engine"):
        OutboxBroker(given, outbox_table=table, dlq_table=None)


def test_a_sessionmaker_is_refused(engine: AsyncEngine, table: Table) -> None:
    given: Any = async_sessionmaker(engine)
    with pytest.raises(InvalidOptionType, match=r"async_sessionmaker.*AsyncEngine"):
        OutboxBroker(given, outbox_table=table, dlq_table=None)


def test_an_engine_of_another_database_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    given = create_async_engine("postgresql+asyncpg://localhost/app")
    monkeypatch.setattr(given.dialect, "name", "mysql")
    with pytest.raises(InvalidOption, match="PostgreSQL"):
        OutboxBroker(given, outbox_table=table, dlq_table=None)
