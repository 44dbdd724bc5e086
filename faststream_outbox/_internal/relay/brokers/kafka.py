"""To Kafka with aiokafka: the message's key is Kafka's, and each message is awaited until the brokers have it."""

from aiokafka import errors  # type: ignore[import-untyped]  # aiokafka has no types

from faststream_outbox._internal.relay.brokers.kafka_publishing import KafkaPublishing
from faststream_outbox._internal.relay.brokers.publishing import by_itself
from faststream_outbox._internal.relay.transport import Refused, Unavailable

_OF_THE_MESSAGE = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTopicError,
    errors.InvalidMessageError,
    errors.UnsupportedForMessageFormatError,
)


class KafkaTransport(KafkaPublishing):
    """A Kafka broker of `faststream.kafka`."""

    def judge(self, error: Exception) -> Refused | Unavailable:
        """Kafka refuses what is too large or misnamed; all its other errors are about the brokers."""
        if isinstance(error, _OF_THE_MESSAGE):
            return Refused(error)
        if isinstance(error, errors.KafkaError | OSError | TimeoutError):
            return Unavailable(error)
        return by_itself(error)
