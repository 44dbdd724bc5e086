"""What tests of applications need: the test broker without a database, and a private PostgreSQL with one.

The names of the test broker are imported when they are first used: a private PostgreSQL needs no FastStream.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faststream_outbox._internal.memory.client import FakeOutboxClient
    from faststream_outbox._internal.memory.transaction import fake_session, fake_sync_session
    from faststream_outbox._internal.testing.broker import TestOutboxBroker
    from faststream_outbox.testing.postgres import PostgresServer

_HOMES = {
    "FakeOutboxClient": "_internal.memory.client",
    "PostgresServer": "testing.postgres",
    "TestOutboxBroker": "_internal.testing.broker",
    "fake_session": "_internal.memory.transaction",
    "fake_sync_session": "_internal.memory.transaction",
}

__all__ = ["FakeOutboxClient", "PostgresServer", "TestOutboxBroker", "fake_session", "fake_sync_session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"faststream_outbox.{_HOMES[name]}"), name)
