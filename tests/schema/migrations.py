"""Alembic as an application runs it: an environment, and the steps of a migration."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, MetaData

ENVIRONMENT = """
from alembic import context

attributes = context.config.attributes
schema = attributes["metadata"].schema


def include_name(name, type_, parent_names):
    return type_ != "schema" or name == schema


context.configure(
    connection=attributes["connection"],
    target_metadata=attributes["metadata"],
    version_table_schema=schema,
    include_schemas=schema is not None,
    include_name=include_name,
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
"""

CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}

Alembic = Callable[[Callable[[Config], object], MetaData], None]


def config_of(directory: Path, connection: Connection, metadata: MetaData) -> Config:
    """What Alembic's command line would read from its file."""
    config = Config(attributes={"connection": connection, "metadata": metadata})
    config.set_main_option("script_location", str(directory).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def autogenerate(config: Config) -> object:
    """Write a migration of what the metadata has and the database has not."""
    return command.revision(config, message="outbox", autogenerate=True)


def upgrade(config: Config) -> None:
    """Run the migrations."""
    command.upgrade(config, "head")


def downgrade(config: Config) -> None:
    """Take them back."""
    command.downgrade(config, "base")
