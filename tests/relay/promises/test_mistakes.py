"""What cannot work is refused at the line that registers the relay, and says what to do."""

from typing import Any

import pytest
from faststream.kafka import KafkaBroker
from faststream.nats import NatsBroker
from faststream.redis import RedisBroker
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.errors import OutboxError, OutboxWarning
from faststream_outbox.log import make_log_tables
from faststream_outbox.relay.sqs import SqsTransport
from tests.cases import each
from tests.relay.playing import Played

NATS, KAFKA, REDIS = NatsBroker(), KafkaBroker(), RedisBroker()
STREAM = NATS.publisher("shop.orders", stream="shop")

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"to": STREAM}, "needs to know what to read"),
    ({"queues": "orders", "to": NATS}, "does not say where to send"),
    ({"queues": "orders", "to": "nats://localhost"}, "to= is a publisher"),
    ({"queues": "orders", "to": None}, "cannot send to a NoneType"),
    ({"queues": "orders", "to": {}}, "needs to know where to send"),
    ({"queues": "orders", "to": KAFKA.publisher("shop", batch=True)}, "Leave out batch=True"),
    ({"queues": "orders", "to": STREAM, "group": "billing"}, "is for topics"),
    ({"queues": "orders", "to": STREAM, "start": "latest"}, "is for topics"),
    ({"queues": "orders", "topic": "orders", "group": "billing", "to": STREAM}, "not both"),
    ({"topic": "orders", "to": STREAM}, "needs a group"),
    ({"topic": [], "group": "billing", "to": STREAM}, "at least one"),
    ({"topic": "orders", "group": "billing", "to": STREAM, "linger": 0.1}, "linger means nothing for a topic"),
    ({"queues": "orders", "to": {"kafka": KAFKA}}, "mapping of schemes is for topics"),
    ({"topic": "orders", "group": "out", "to": {"kafka": KAFKA}}, "has no scheme"),
    ({"topic": "amqp://", "group": "out", "to": {"kafka": KAFKA}}, "Nobody takes amqp://"),
    ({"group": "out", "to": {"kafka://": KAFKA}}, "takes schemes such as 'kafka'"),
    ({"group": "out", "to": {"kafka": "localhost:9092"}}, "a FastStream broker, a publisher or a transport"),
    ({"queues": "orders", "to": STREAM, "batch_size": 500, "max_in_flight": 100}, "Lower batch_size too"),
    ({"queues": "orders", "to": STREAM, "batch_size": 0}, "at least 1"),
    ({"queues": "orders", "to": STREAM, "on_dead": "stop"}, "on_dead must be one of"),
]


def broker() -> OutboxBroker:
    metadata = MetaData()
    return OutboxBroker(
        outbox_table=make_outbox_table(metadata), dlq_table=None, log_tables=make_log_tables(metadata, "outbox_log")
    )


@each(("given", "said"), MISTAKES)
def test_a_mistake_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OutboxError, match=said):
        broker().relay(**given)


def test_a_topic_needs_tables() -> None:
    without = OutboxBroker(outbox_table=make_outbox_table(MetaData()), dlq_table=None)
    with pytest.raises(Exception, match="log_tables"):
        without.relay(topic="orders", group="out", to=STREAM)


def test_a_queue_that_is_read_twice_is_warned_about() -> None:
    ours = broker()
    ours.relay("orders", to=Played())
    with pytest.warns(OutboxWarning, match="Queue 'orders' has two subscribers"):
        ours.relay("orders", to=STREAM)


def test_sqs_needs_an_address() -> None:
    with pytest.raises(OutboxError, match="needs the address"):
        SqsTransport()


def test_a_mapping_stands_for_all_its_schemes() -> None:
    relay = broker().relay(group="out", to={"kafka": KAFKA, "redis": REDIS})
    assert relay.queues == ("kafka://", "redis://")
    assert [line.name for line in relay.lines] == ["kafka", "redis"]
