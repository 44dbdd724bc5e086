"""What FastStream and the broker must know of test brokers before any test has imported one.

`broker.broker` has this module imported, and nothing else of what is here: the test broker itself, and the
tables in memory below it, come when somebody asks for them.
"""

from typing import Any

from faststream_outbox._internal.broker._faststream import TestBroker
from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.forwarding import CAN_PUBLISH


class OnDemand(TestBroker[OutboxBroker, Any], broker=OutboxBroker):
    """What FastStream finds for the broker: made, it is a `TestOutboxBroker`."""

    def __new__(cls, *brokers: OutboxBroker, **options: Any) -> Any:
        """The test broker."""
        from faststream_outbox._internal.testing.broker import TestOutboxBroker

        return TestOutboxBroker(*brokers, **options)


# A broker under its own test broker takes what is forwarded to it, and is never started.
CAN_PUBLISH.append(lambda publisher: publisher.is_test)
