"""From claims to messages. Takes any row: what is odd about it must not keep it from being settled."""

from collections.abc import Sequence
from typing import Any

from faststream.message import StreamMessage, decode_message
from faststream.types import DecodedMessage

from faststream_outbox._internal.broker._faststream import json_loads
from faststream_outbox._internal.broker.message import OutboxBatchMessage, OutboxMessage, Received, parsed

JSON = "application/json"


class OutboxParser:
    """Parses and decodes one message."""

    async def parse_message(self, claim: Received) -> OutboxMessage:
        """A message of the claim."""
        return parsed(claim)

    async def decode_message(self, message: StreamMessage[Received]) -> DecodedMessage:
        """The body by its content type."""
        return decoded(message)


class OutboxBatchParser:
    """Parses and decodes a batch."""

    async def parse_batch(self, claims: Sequence[Received]) -> OutboxBatchMessage:
        """One message for all claims, with one of each inside."""
        first = parsed(claims[0])
        return OutboxBatchMessage(
            raw_message=claims,
            body=[claim.payload for claim in claims],
            headers=first.headers,
            reply_to=first.reply_to,
            content_type=first.content_type,
            correlation_id=first.correlation_id,
            message_id=first.message_id,
        )

    # FastStream knows a batch subscriber by this name.
    async def decode_batch(self, batch: OutboxBatchMessage) -> list[DecodedMessage]:
        """The bodies by their content types."""
        return [decoded(each) for each in batch.contents()]


def decoded(content: Any) -> DecodedMessage:
    """The body of a message or `Content` by its type, as FastStream reads it; JSON, the most frequent, sooner."""
    if content.content_type == JSON:
        value: DecodedMessage = json_loads(content.body)
        return value
    try:
        return decode_message(content)
    except (ValueError, RecursionError):
        # Nobody said that it is JSON: thousands of digits or brackets are bytes then, as other bytes are.
        if content.content_type:
            raise
        body: bytes = content.body
        return body
