"""From claims to messages. Takes any row: what is odd about it must not keep it from being settled."""

from collections.abc import Sequence

from faststream.message import StreamMessage, decode_message
from faststream.types import DecodedMessage

from faststream_outbox.broker.message import OutboxBatchMessage, OutboxMessage, Taken, correlation_of
from faststream_outbox.log.delivery import Delivery

REPLY_TO = "reply_to"
CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"


class OutboxParser:
    """Parses and decodes one message."""

    async def parse_message(self, claim: Taken) -> OutboxMessage:
        """A message of the claim."""
        return parsed(claim)

    async def decode_message(self, message: StreamMessage[Taken]) -> DecodedMessage:
        """The body by its content type."""
        return decode_message(message)


class OutboxBatchParser:
    """Parses and decodes a batch."""

    async def parse_batch(self, claims: Sequence[Taken]) -> OutboxBatchMessage:
        """One message for all claims, with one of each inside."""
        messages = [parsed(claim) for claim in claims]
        first = messages[0]
        batch = OutboxBatchMessage(
            raw_message=claims,
            body=[message.body for message in messages],
            headers=first.headers,
            batch_headers=[{**message.headers, CORRELATION_ID: message.correlation_id} for message in messages],
            reply_to=first.reply_to,
            content_type=first.content_type,
            correlation_id=first.correlation_id,
            message_id=first.message_id,
        )
        batch.messages = messages
        return batch

    # FastStream knows a batch subscriber by this name.
    async def decode_batch(self, batch: OutboxBatchMessage) -> list[DecodedMessage]:
        """The bodies by their content types."""
        return [decode_message(message) for message in batch.messages]


def parsed(claim: Taken) -> OutboxMessage:
    """A message of the claim."""
    headers = claim.headers
    content_type = headers.get(CONTENT_TYPE)
    if isinstance(claim, Delivery) and claim.is_json:
        content_type = "application/json"
    return OutboxMessage(
        raw_message=claim,
        body=claim.payload,
        headers=headers,
        reply_to=str(headers.get(REPLY_TO) or ""),
        content_type=content_type if isinstance(content_type, str) else None,
        correlation_id=correlation_of(claim),
        message_id=str(claim.message_id),
    )
