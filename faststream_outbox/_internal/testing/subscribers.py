"""The subscribers of brokers under test, each with the client of its broker.

Used by whatever hands messages to them: at once, in loops, or for a request.
"""

from collections.abc import Iterable
from typing import cast

from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber
from faststream_outbox._internal.memory.client import FakeOutboxClient
from faststream_outbox._internal.memory.reader import MemoryReader


def subscribers(brokers: Iterable[OutboxBroker]) -> list[tuple[FakeOutboxClient, OutboxSubscriber]]:
    """The subscribers, each with the client of its broker."""
    return [
        (cast("FakeOutboxClient", broker.client), cast("OutboxSubscriber", subscriber))
        for broker in brokers
        for subscriber in broker.subscribers
    ]


def reader_of(client: FakeOutboxClient, subscriber: OutboxSubscriber, topic: str) -> MemoryReader:
    """What makes attempts at the messages of a topic for a subscriber; its group begins where the subscriber says."""
    return MemoryReader(
        client.log.group(subscriber.group or "", topic, subscriber._usecase.start),
        name=subscriber.specification.call_name,
        strategy=subscriber.options.retry_strategy,
        events=client.events,
        renderer=client.renderer,
    )
