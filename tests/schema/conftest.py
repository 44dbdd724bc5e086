"""A PostgreSQL schema of the test's own, with both tables in it, to be damaged at will; and an empty database."""

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Engine, MetaData, Table, create_engine, text
from sqlalchemy.exc import DBAPIError

from faststream_outbox._internal.schema.check import printed
from faststream_outbox.schema import Difference, make_dlq_table, make_outbox_table
from tests.schema.migrations import ENVIRONMENT, Alembic, config_of

Execute = Callable[..., None]
Repair = Callable[[list[Difference]], None]
Since = Callable[[int], None]

NAMES = {"{t}": '"Drift S".outbox', "{d}": '"Drift S".outbox_dlq', "{s}": '"Drift S"'}
"""What stands for the tables and their schema in statements."""


@pytest.fixture
def execute(builder: Engine) -> Execute:
    """Runs statements, each in a transaction of its own."""

    def run(*statements: str) -> None:
        with builder.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                for mark, name in NAMES.items():
                    statement = statement.replace(mark, name)
                try:
                    connection.exec_driver_sql(statement)
                except DBAPIError:
                    # A transaction that the statements began is over, as it is for psql at the next COMMIT.
                    connection.exec_driver_sql("ROLLBACK")
                    raise

    return run


@pytest.fixture
def repair(execute: Execute) -> Repair:
    """Runs what is printed, line by line, as somebody would who pastes it into psql."""

    def run(differences: list[Difference]) -> None:
        execute(*(line for line in printed(differences).splitlines() if not line.startswith("--")))

    return run


@pytest.fixture
def since(builder: Engine) -> Since:
    """Skips a test of what PostgreSQL has only had since a version."""

    def run(version: int) -> None:
        with builder.connect() as connection:
            if (connection.dialect.server_version_info or ()) < (version,):
                pytest.skip(f"PostgreSQL has this since version {version}")

    return run


@pytest.fixture
def drift_metadata(execute: Execute) -> Iterator[MetaData]:
    execute("CREATE SCHEMA {s}")
    yield MetaData(schema="Drift S")
    execute("DROP SCHEMA {s} CASCADE")


@pytest.fixture
def outbox(drift_metadata: MetaData, builder: Engine) -> Table:
    """The queue's table with a row in it."""
    table = make_outbox_table(drift_metadata)
    table.create(builder)
    with builder.begin() as connection:
        connection.execute(table.insert().values(queue="orders", payload=b"1", timer_id="a"))
    return table


@pytest.fixture
def dead(drift_metadata: MetaData, builder: Engine) -> Table:
    """The dead letters' table with a row in it."""
    table = make_dlq_table(drift_metadata)
    table.create(builder)
    with builder.begin() as connection:
        connection.exec_driver_sql(
            'INSERT INTO "Drift S".outbox_dlq (original_id, message_id, queue, payload, created_at, failure_reason)'
            " VALUES (1, gen_random_uuid(), 'orders', '1', now(), 'rejected')"
        )
    return table


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
def alembic(empty_engine: Engine, tmp_path: Path) -> Alembic:
    """Runs a command of Alembic's on the empty database, as its command line would."""
    directory = tmp_path / "migrations"
    command.init(Config(tmp_path / "alembic.ini", stdout=StringIO()), str(directory))
    (directory / "env.py").write_text(ENVIRONMENT)

    def run(step: Callable[[Config], object], metadata: MetaData) -> None:
        with empty_engine.connect() as connection:
            step(config_of(directory, connection, metadata))

    return run
