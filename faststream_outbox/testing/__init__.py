"""What tests of applications need: the test broker without a database, and a private PostgreSQL with one."""

from faststream_outbox.broker.fake_client import FakeOutboxClient
from faststream_outbox.broker.testing import TestOutboxBroker, fake_session

__all__ = ["FakeOutboxClient", "TestOutboxBroker", "fake_session"]
