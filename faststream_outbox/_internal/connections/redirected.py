"""Connections to another address by an engine's own settings.

The engine makes them as it makes its own (TLS, `connect_args`, passwords that are fetched for each connection, the
application's `do_connect` hooks, which see the new address), except for where they go. An engine with a creator of its
own cannot be sent elsewhere: then the address stands alone, and must say by itself whether it wants TLS. Used by
`DedicatedConnection`.
"""

from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection

from faststream_outbox._internal.connections.address import Address
from faststream_outbox.errors import ConnectionUnusable


class Dialling:
    """One engine's way to another address."""

    def __init__(self, engine: AsyncEngine, address: Address) -> None:
        self.address = address
        self.was_heeded = False
        """Whether the engine asked where to go; one with a creator does not."""
        self._engine = engine
        self._alone: Engine | None = None
        if not event.contains(engine.sync_engine, "do_connect", _redirect):
            event.listen(engine.sync_engine, "do_connect", _redirect)

    def connect(self) -> PoolProxiedConnection:
        """Open a connection; called where SQLAlchemy's synchronous code runs."""
        if self._alone is not None:
            return self._alone.pool.connect()
        before = _DIALLING.set(self)
        try:
            proxied = self._engine.sync_engine.pool.recreate().connect()
        finally:
            _DIALLING.reset(before)
        if self.was_heeded:
            return proxied
        proxied.invalidate()
        if "sslmode" not in self.address.settings and not self.address.is_local:
            msg = (
                "The engine has a creator, or a do_connect hook that connects by itself: listen_dsn cannot take over "
                "its settings. Say in listen_dsn "
                "whether it wants TLS: ?sslmode=verify-full&sslrootcert=…, or ?sslmode=disable."
            )
            raise ConnectionUnusable(msg)
        driver = self._engine.dialect.driver
        made = create_async_engine(
            URL.create(f"postgresql+{driver}"), connect_args=self.address.arguments(driver, {}), poolclass=NullPool
        )
        self._alone = made.sync_engine
        return self._alone.pool.connect()


_DIALLING: ContextVar[Dialling | None] = ContextVar("faststream_outbox.dialling", default=None)


def _redirect(
    dialect: Dialect, record: ConnectionPoolEntry, arguments: Any, options: MutableMapping[str, Any]
) -> DBAPIConnection | None:
    dialling = _DIALLING.get()
    if dialling is None:
        return None
    dialling.was_heeded = True
    own = dialling.address.arguments(dialect.driver, options)
    before = _DIALLING.set(None)
    try:
        # All of them, whenever they came: those before this hook saw the engine's address, those after it nothing.
        for hook in dialect.dispatch.do_connect:
            connection: DBAPIConnection | None = hook(dialect, record, arguments, own)
            if connection is not None:
                return connection
        return dialect.connect(*arguments, **own)
    finally:
        _DIALLING.reset(before)
