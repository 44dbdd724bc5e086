"""To Kafka, with aiokafka or librdkafka: the message's key is Kafka's, and each is awaited until the brokers have it.

Kafka refuses what is too large or misnamed; all its other errors are about the brokers. A client library is imported
only where its transport is made.
"""

from typing import Any

from faststream_outbox._internal.relay.brokers.publishing import Publishing, by_itself, text_headers
from faststream_outbox._internal.relay.transport import Refused, RelayMessage, Unavailable


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


class KafkaTransport(KafkaPublishing):
    """A Kafka broker of `faststream.kafka`."""

    def __init__(self, *given: Any) -> None:
        from aiokafka import errors  # type: ignore[import-untyped]  # aiokafka has no types

        super().__init__(*given)
        self._of_the_message = (
            errors.MessageSizeTooLargeError,
            errors.RecordListTooLargeError,
            errors.InvalidTopicError,
            errors.InvalidMessageError,
            errors.UnsupportedForMessageFormatError,
        )
        self._of_the_brokers = (errors.KafkaError, OSError, TimeoutError)

    def judge(self, error: Exception) -> Refused | Unavailable:
        """Refused, or to be tried again."""
        if isinstance(error, self._of_the_message):
            return Refused(error)
        if isinstance(error, self._of_the_brokers):
            return Unavailable(error)
        return by_itself(error)


class ConfluentTransport(KafkaPublishing):
    """A Kafka broker of `faststream.confluent`."""

    def __init__(self, *given: Any) -> None:
        from confluent_kafka import KafkaError, KafkaException

        super().__init__(*given)
        self._raised = KafkaException
        self._of_the_message = frozenset(
            (
                KafkaError.MSG_SIZE_TOO_LARGE,
                KafkaError.RECORD_LIST_TOO_LARGE,
                KafkaError.TOPIC_EXCEPTION,
                KafkaError.INVALID_MSG,
                KafkaError.INVALID_RECORD,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
            )
        )

    def judge(self, error: Exception) -> Refused | Unavailable:
        """Refused, or to be tried again."""
        if isinstance(error, self._raised):
            code = getattr(error.args[0] if error.args else None, "code", None)
            is_its_own = callable(code) and code() in self._of_the_message
            return Refused(error) if is_its_own else Unavailable(error)
        if isinstance(error, BufferError | OSError | TimeoutError):
            return Unavailable(error)
        return by_itself(error)
