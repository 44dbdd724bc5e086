"""Forwarding: publishers of other brokers on handlers of ours.

What the handler returns is published there before its message is settled, so that it arrives at least
once. The other broker must run for that: a subscriber consumes only while it does, in whatever order the
brokers are started and stopped. `carry_id` sends the message's own id along, for who gets it twice.
Used by subscribers and by the middleware.
"""

from collections.abc import Callable
from typing import Any

from faststream import AckPolicy
from faststream.response import PublishCommand

from faststream_outbox._internal.broker._faststream import CallsCollection, PublisherUsecase
from faststream_outbox._internal.broker.message import Received
from faststream_outbox._internal.broker.publisher import OutboxPublisher
from faststream_outbox._internal.broker.warn import warn_about_publisher
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.relay.gate import PAUSE_SECONDS, broker_of, family, weakness
from faststream_outbox._internal.service import until

MESSAGE_ID = "message_id"
NATS_MESSAGE_ID = "Nats-Msg-Id"
"""What JetStream knows duplicates by."""
_FORGETS = "AckPolicy.ACK deletes the message although publishing failed. Use NACK_ON_ERROR, the default"


class Forwarding:
    """The publishers of other brokers on one subscriber's handlers; false where there are none."""

    def __init__(self, calls: CallsCollection[Any]) -> None:
        self._publishers = [
            (call.handler._declared_call, publisher)
            for call in calls
            for publisher in call.handler._publishers
            if isinstance(publisher, PublisherUsecase) and not isinstance(publisher, OutboxPublisher)
        ]

    def __bool__(self) -> bool:
        return bool(self._publishers)

    def warn(self, policy: AckPolicy) -> None:
        """Warn about publishers that may lose what they were given, and about a policy that does."""
        for handler, publisher in self._publishers:
            problem = _FORGETS if policy is AckPolicy.ACK else weakness(publisher)
            if problem is not None:
                warn_about_publisher(handler, problem)

    @property
    def is_open(self) -> bool:
        """Whether all their brokers run."""
        return all(_is_open(publisher) for _, publisher in self._publishers)

    async def opened(self, timeout: float, is_over: Callable[[], bool]) -> bool:
        """Wait until all their brokers run, for so long and until it is over; whether they do."""
        return await until(lambda: self.is_open, timeout, is_over, PAUSE_SECONDS)

    @property
    def missing(self) -> str:
        """What is wrong while they do not all run."""
        names = {type(broker_of(publisher)).__name__ for _, publisher in self._publishers if not _is_open(publisher)}
        return (
            f"It forwards to {', '.join(sorted(names))}, which was not started. Give both brokers to the application, "
            "FastStream(outbox_broker, other_broker), or call the other's start()."
        )


def _runs(publisher: PublisherUsecase) -> bool:
    # Not its connection alone: a broker that starts declares streams and exchanges after it has connected.
    is_running: bool = getattr(broker_of(publisher), "running", True)
    return is_running


CAN_PUBLISH: list[Callable[[PublisherUsecase], bool]] = [_runs]
"""Ways to see that a publisher of another broker can be used: one that says so is enough.

Whoever puts something else in the place of other brokers adds its own.
"""


def _is_open(publisher: PublisherUsecase) -> bool:
    return any(can_publish(publisher) for can_publish in CAN_PUBLISH)


def carry_id(cmd: PublishCommand, taken: Received, group: str | None) -> None:
    """Send the id of the message that is forwarded along, unless the handler gave another."""
    message_id = str(taken.message_id)
    if getattr(cmd, "extra_bodies", ()):
        # Several messages made of one: under one id all but the first would look like repetitions.
        return
    match family(cmd):
        case "rabbit":
            options: dict[str, Any] = getattr(cmd, "message_options", {})
            if not options.get(MESSAGE_ID):
                cmd.message_options = {**options, MESSAGE_ID: message_id}  # type: ignore[attr-defined]  # RabbitMQ's has it
        case "nats":
            ids = {MESSAGE_ID: message_id}
            if not isinstance(taken, Delivery) or taken.has_event_id:
                # What a stream drops as a duplicate must be one: not what two publishers of a handler, or two
                # groups of a topic, make of one message, nor what has the same position in another log.
                ids[NATS_MESSAGE_ID] = ":".join(filter(None, (message_id, group, cmd.destination)))
            cmd.headers = {**ids, **cmd.headers}
        case "kafka" | "confluent" | "redis":
            cmd.headers = {MESSAGE_ID: message_id, **cmd.headers}
        case _:
            # Others may refuse headers, as MQTT 3 does.
            pass
