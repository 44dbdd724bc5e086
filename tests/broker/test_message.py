"""A batch as handlers and middlewares see it: its messages are made when asked for, and then are the batch's own."""

from typing import Any

import pytest
from faststream.message import AckStatus

from faststream_outbox._internal.broker.message import OutboxBatchMessage, OutboxBatchParser
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.memory.log import MemoryLog
from faststream_outbox._internal.outcomes.outcome import DONE, Dead, Retry


@pytest.fixture
async def batch() -> OutboxBatchMessage:
    messages = [
        OutboxMessage("orders", b"%d" % number, {"content-type": "application/json", "n": str(number)})
        for number in (1, 2)
    ]
    return await OutboxBatchParser().parse_batch([Delivery(row, "orders") for row in MemoryLog().append(messages)])


async def test_bodies_are_decoded_without_making_messages(batch: OutboxBatchMessage) -> None:
    assert await OutboxBatchParser().decode_batch(batch) == [1, 2]
    assert "messages" not in vars(batch)


async def test_body_that_a_middleware_replaced_is_the_one_that_is_decoded(batch: OutboxBatchMessage) -> None:
    batch.messages[1].body = b"7"
    assert await OutboxBatchParser().decode_batch(batch) == [1, 7]


def test_headers_of_each_message_hold_its_correlation_id(batch: OutboxBatchMessage) -> None:
    assert [each["n"] for each in batch.batch_headers] == ["1", "2"]
    assert [each["correlation_id"] for each in batch.batch_headers] == [each.correlation_id for each in batch.messages]


@pytest.mark.parametrize(
    ("way", "status", "outcome"),
    [("ack", AckStatus.ACKED, DONE), ("nack", AckStatus.NACKED, Retry()), ("reject", AckStatus.REJECTED, Dead())],
)
@pytest.mark.parametrize("is_made_before", [True, False])
async def test_decision_on_the_batch_is_seen_on_its_messages(
    batch: OutboxBatchMessage, way: str, status: AckStatus, outcome: Any, is_made_before: bool
) -> None:
    made = batch.messages if is_made_before else None
    await getattr(batch, way)()
    assert [message.committed for message in made or batch.messages] == [status, status]
    assert [claim.decision for claim in batch.raw_message] == [outcome, outcome]


async def test_message_that_was_decided_alone_keeps_its_decision(batch: OutboxBatchMessage) -> None:
    await batch.messages[0].reject()
    await batch.ack()
    assert [message.committed for message in batch.messages] == [AckStatus.REJECTED, AckStatus.ACKED]
    assert [claim.decision for claim in batch.raw_message] == [Dead(), DONE]
