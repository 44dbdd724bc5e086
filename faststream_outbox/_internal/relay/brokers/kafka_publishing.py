"""What transports to Kafka share, whichever client library they use."""

from typing import Any

from faststream_outbox._internal.relay.brokers.publishing import Publishing, text_headers
from faststream_outbox._internal.relay.message import RelayMessage


class KafkaPublishing(Publishing):
    """What both of FastStream's Kafka brokers share."""

    async def publish(self, message: RelayMessage) -> None:
        """Publish one message, and wait for the acks that the broker is set to."""
        where = self.where(message)
        topic, key = (None, message.key) if where is None else (where[0], where[1] or None)
        given: dict[str, Any] = {} if topic is None else {"topic": topic}
        await self._to.publish(
            message.body,
            key=None if key is None else key.encode(),
            headers=text_headers(message),
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            **given,
        )
