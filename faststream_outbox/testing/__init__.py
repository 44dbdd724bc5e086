"""What tests of applications need: the test broker without a database, and a private PostgreSQL with one.

The names of the test broker are imported when they are first used: a private PostgreSQL needs no FastStream.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faststream_outbox.broker.fake_client import FakeOutboxClient
    from faststream_outbox.broker.testing import TestOutboxBroker, fake_session, fake_sync_session

__all__ = ["FakeOutboxClient", "TestOutboxBroker", "fake_session", "fake_sync_session"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from faststream_outbox.broker import testing

    return getattr(testing, name)
