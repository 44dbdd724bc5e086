"""What the broker takes as its engine: one of yours, which it never closes, or an address, whose engine is its own."""

from typing import Any

import pytest
from sqlalchemy import URL, Engine, MetaData, Table, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox._internal.broker import engine as engines
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from tests.broker.conformance.ways import Seen, noting
from tests.cases import each
from tests.waiting import eventually

NAMED = "an_address"


@pytest.fixture
def address(database_url: URL) -> URL:
    return database_url.set(drivername="postgresql+psycopg", query={"application_name": NAMED})


def _connections(sync_engine: Engine) -> int:
    with sync_engine.connect() as connection:
        asked = text("select count(*) from pg_stat_activity where application_name like :name")
        found: int = connection.execute(asked, {"name": f"%{NAMED}%"}).scalar_one()
        return found


async def _publish(broker: OutboxBroker, body: int) -> None:
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish(body, "orders", session=session)


@pytest.mark.parametrize("as_url", [False, True], ids=["text", "URL"])
async def test_engine_of_an_address_connects_when_it_is_used_is_closed_by_stop_and_opened_again_by_start(
    address: URL, table: Table, sync_engine: Engine, *, as_url: bool
) -> None:
    given = address if as_url else address.render_as_string(hide_password=False)
    broker = OutboxBroker(given, outbox_table=table, dlq_table=None, logger=None)
    seen = Seen()
    noting(broker, seen)
    assert _connections(sync_engine) == 0
    for round_ in range(2):
        await broker.start()
        await _publish(broker, round_)
        await seen.first(round_ + 1)
        assert _connections(sync_engine) > 0
        await broker.stop()
        await eventually(lambda: _connections(sync_engine) == 0, timeout=20)


async def test_leaving_a_broker_that_only_publishes_closes_the_engine_of_an_address(
    address: URL, table: Table, sync_engine: Engine
) -> None:
    broker = OutboxBroker(address, outbox_table=table, dlq_table=None, logger=None)
    async with broker:
        await _publish(broker, 1)
        assert _connections(sync_engine) > 0
    await eventually(lambda: _connections(sync_engine) == 0, timeout=20)


def _broker(given: Any) -> OutboxBroker:
    return OutboxBroker(given, outbox_table=make_outbox_table(MetaData()), dlq_table=None)


async def test_engine_that_was_given_is_the_brokers_engine(engine: AsyncEngine) -> None:
    assert _broker(engine).engine is engine


@each(
    ("given", "expected"),
    [
        ("postgresql://somebody:secret@localhost:5433/app", "postgresql+asyncpg://somebody:secret@localhost:5433/app"),
        ("postgres://somebody:secret@localhost:5433/app", "postgresql+asyncpg://somebody:secret@localhost:5433/app"),
        # A hosting service's, with encryption.
        ("postgresql://localhost/app?sslmode=require", "postgresql+asyncpg://localhost/app?ssl=require"),
    ],
)
def test_an_address_without_a_driver_gets_one_that_is_installed(given: str, expected: str) -> None:
    assert _broker(given).engine.url == make_url(expected)


def test_an_address_without_a_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match=r"pip install asyncpg.*psycopg\[binary\]"):
        _broker("postgresql://localhost/app")


OTHER = create_async_engine("postgresql+asyncpg://localhost/app")
OTHER.dialect.name = "mysql"


@each(
    ("given", "error", "said"),
    [
        *(
            (
                f"postgresql+{driver}://h/app",
                InvalidOption,
                rf"{driver}.*postgresql\+asyncpg://.*postgresql\+psycopg://",
            )
            for driver in ("psycopg2", "aiopg", "pg8000")
        ),
        ("mysql+aiomysql://localhost/app", InvalidOption, "PostgreSQL"),
        ("sqlite+aiosqlite://", InvalidOption, "PostgreSQL"),
        (OTHER, InvalidOption, "PostgreSQL"),
        ("localhost secret", InvalidOption, r"postgresql\+asyncpg://user:password@host/database"),
        (create_engine("postgresql+psycopg://h/app"), InvalidOptionType, r"sync Engine.*create_async_engine"),
        (async_sessionmaker(OTHER), InvalidOptionType, r"async_sessionmaker.*AsyncEngine"),
    ],
)
def test_what_cannot_be_the_engine_is_refused_without_repeating_it(given: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        _broker(given)
    assert "secret" not in str(raised.value)
