"""A PostgreSQL schema of the test's own, with both tables in it, to be damaged at will; and an empty database."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Engine, MetaData, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.schema.check import printed
from faststream_outbox.schema import Difference, find_differences, make_dlq_table, make_outbox_table
from tests.schema.migrations import ENVIRONMENT, Alembic, config_of

NAMES = {"{t}": '"Drift S".outbox', "{d}": '"Drift S".outbox_dlq', "{s}": '"Drift S"'}
"""What stands for the tables and their schema in statements."""


class Live:
    """The queue's table and the dead letters', in a schema of their own, to be damaged at will."""

    def __init__(self, engine: AsyncEngine, builder: Engine) -> None:
        self.engine = engine
        self.builder = builder
        self.metadata = MetaData(schema="Drift S")
        self.outbox = make_outbox_table(self.metadata)
        self.dead = make_dlq_table(self.metadata)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.builder.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                try:
                    connection.exec_driver_sql(named(statement))
                except DBAPIError:
                    # A transaction that the statements began is over, as it is for psql at the next COMMIT.
                    connection.exec_driver_sql("ROLLBACK")
                    raise

    def answers(self, question: str) -> list[Any]:
        """The first column of what a statement returns, which is committed."""
        with self.builder.begin() as connection:
            return list(connection.exec_driver_sql(named(question)).scalars())

    async def differences(self, *, dead: bool = False) -> list[Difference]:
        """What is wrong with the queue's table, or with both."""
        return list(await find_differences(self.engine, self.outbox, self.dead if dead else None))

    def repair(self, differences: Sequence[Difference]) -> None:
        """Run what is printed, line by line, as somebody would who pastes it into psql."""
        self.execute(*(line for line in printed(differences).splitlines() if not line.startswith("--")))

    def since(self, version: int) -> None:
        """Skip a test of what PostgreSQL has only had since a version."""
        with self.builder.connect() as connection:
            if (connection.dialect.server_version_info or ()) < (version,):
                pytest.skip(f"PostgreSQL has this since version {version}")


def named(statement: str) -> str:
    """A statement, or a place, with the names of the tables and of their schema."""
    for mark, name in NAMES.items():
        statement = statement.replace(mark, name)
    return statement


@pytest.fixture
def bare(engine: AsyncEngine, builder: Engine) -> Iterator[Live]:
    """The schema, and nothing in it."""
    live = Live(engine, builder)
    live.execute("CREATE SCHEMA {s}")
    yield live
    live.execute("DROP SCHEMA {s} CASCADE")


@pytest.fixture
def live(bare: Live) -> Live:
    """Both tables with a row in each."""
    bare.metadata.create_all(bare.builder)
    bare.execute(
        "INSERT INTO {t} (queue, payload, timer_id) VALUES ('orders', '1', 'a')",
        "INSERT INTO {d} (original_id, message_id, queue, payload, created_at, failure_reason)"
        " VALUES (1, gen_random_uuid(), 'orders', '1', now(), 'rejected')",
    )
    return bare


@pytest.fixture
def empty_url(sync_engine: Engine, database_url: URL) -> Iterator[URL]:
    """A database that has nothing in it but an empty schema."""
    name = f"{database_url.database}_alembic"
    url = database_url.set(database=name)
    with sync_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield url
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def empty_engine(empty_url: URL) -> Iterator[Engine]:
    engine = create_engine(empty_url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "App S"'))
    yield engine
    engine.dispose()


@pytest.fixture
async def empty(empty_url: URL) -> AsyncIterator[AsyncEngine]:
    """The same database, asynchronously."""
    engine = create_async_engine(empty_url)
    yield engine
    await engine.dispose()


@pytest.fixture
def alembic(empty_engine: Engine, tmp_path: Path) -> Alembic:
    """Runs a command of Alembic's on the empty database, as its command line would."""
    directory = tmp_path / "migrations"
    command.init(Config(tmp_path / "alembic.ini", stdout=StringIO()), str(directory))
    (directory / "env.py").write_text(ENVIRONMENT)

    def run(step: Callable[[Config], object], metadata: MetaData) -> None:
        with empty_engine.connect() as connection:
            step(config_of(directory, connection, metadata))

    return run
