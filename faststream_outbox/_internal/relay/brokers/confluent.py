"""To Kafka with librdkafka: as `kafka`, with the errors of the other client."""

from confluent_kafka import KafkaError, KafkaException

from faststream_outbox._internal.relay.brokers.kafka_publishing import KafkaPublishing
from faststream_outbox._internal.relay.brokers.publishing import by_itself
from faststream_outbox._internal.relay.transport import Refused, Unavailable

_OF_THE_MESSAGE_BY_CODE = frozenset(
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


class ConfluentTransport(KafkaPublishing):
    """A Kafka broker of `faststream.confluent`."""

    def judge(self, error: Exception) -> Refused | Unavailable:
        """Kafka refuses what is too large or misnamed; all its other errors are about the brokers."""
        if isinstance(error, KafkaException):
            known = error.args[0] if error.args else None
            is_its_own = isinstance(known, KafkaError) and known.code() in _OF_THE_MESSAGE_BY_CODE
            return Refused(error) if is_its_own else Unavailable(error)
        if isinstance(error, BufferError | OSError | TimeoutError):
            return Unavailable(error)
        return by_itself(error)
