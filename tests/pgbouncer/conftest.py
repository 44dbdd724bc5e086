"""Engines behind PgBouncer in transaction mode, on each driver, and what strangers find on its connections."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests.pgbouncer.pooler import pooled
from tests.publish.ways import plain

SETTINGS: dict[str, dict[str, Any]] = {
    "asyncpg": {"prepared_statement_cache_size": 0, "statement_cache_size": 0},
    "psycopg": {"prepare_threshold": None},
}

Make = Callable[[], AsyncEngine]


@pytest.fixture(params=[1, 3], ids=["one server connection", "three server connections"])
def servers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def pooler(servers: int, database_url: URL, tmp_path: Path) -> AsyncIterator[URL]:
    async with pooled(database_url, tmp_path, servers=servers) as there:
        yield there.url


@pytest.fixture(params=SETTINGS)
async def make(request: pytest.FixtureRequest, pooler: URL) -> AsyncIterator[Make]:
    """Makes engines behind the pooler, on each of the drivers in turn."""
    engines: list[AsyncEngine] = []

    def make() -> AsyncEngine:
        url = pooler.set(drivername=f"postgresql+{request.param}")
        engines.append(create_async_engine(url, connect_args=SETTINGS[request.param]))
        return engines[-1]

    yield make
    for engine in engines:
        await engine.dispose()


class Left:
    """What strangers would find on the server connections."""

    def __init__(self, pooler: URL, servers: int) -> None:
        self._pooler = pooler
        self._servers = servers

    def _ask(self, sql: str) -> list[Any]:
        # All server connections at once: each is held until its transaction ends.
        connections = [psycopg.connect(plain(self._pooler), prepare_threshold=None) for _ in range(self._servers)]
        found = [row for connection in connections for row in connection.execute(sql.encode()).fetchall()]
        for connection in connections:
            # A client that leaves in the midst of a transaction takes the server connection with it.
            connection.rollback()
            connection.close()
        return found

    def statements(self) -> list[Any]:
        """Prepared statements by name."""
        return self._ask("select name, statement from pg_prepared_statements")

    def state(self) -> list[Any]:
        """Locks that outlive a transaction, channels that are listened to, cursors, temporary tables."""
        return [
            *self._ask("select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"),
            *self._ask("select pg_listening_channels()"),
            *self._ask("select name from pg_cursors where is_holdable"),
            *self._ask("select relname from pg_class where relpersistence = 't'"),
        ]

    def changed_settings(self) -> list[Any]:
        """Settings that are not as a new session has them, but for those that the pooler sets for each client."""
        return self._ask(
            "select name, setting from pg_settings where source = 'session' and setting is distinct from reset_val"
            " and name not in ('client_encoding', 'application_name')"
        )

    def names(self) -> list[Any]:
        """Names that only connections of the library's own have."""
        return self._ask("select setting from pg_settings where name = 'application_name' and setting like 'outbox %'")

    def everything(self) -> list[Any]:
        return [*self.statements(), *self.state(), *self.changed_settings()]


@pytest.fixture
def left(pooler: URL, servers: int) -> Left:
    return Left(pooler, servers)
