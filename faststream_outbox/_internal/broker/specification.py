"""How subscribers and publishers appear in AsyncAPI documents."""

from dataclasses import dataclass

from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec

from faststream_outbox._internal.broker._faststream import (
    PublisherSpecification,
    PublisherSpecificationConfig,
    SubscriberSpecification,
    SubscriberSpecificationConfig,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig


@dataclass(kw_only=True)
class OutboxSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What a subscriber's description needs."""

    queues: tuple[str, ...]


@dataclass(kw_only=True)
class OutboxPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What a publisher's description needs."""

    queue: str


class OutboxSubscriberSpecification(SubscriberSpecification[OutboxBrokerConfig, OutboxSubscriberSpecificationConfig]):
    """One channel per queue."""

    @property
    def channel_labels(self) -> list[str]:
        """The queues, with the prefixes of the routers around them."""
        return [f"{self._outer_config.prefix}{queue}" for queue in self.config.queues]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channels."""
        payloads = resolve_payloads(self.get_payloads())
        labels = self.channel_labels
        schema: dict[str, SubscriberSpec] = {}
        for label in labels:
            name = self._channel_key(label, split=len(labels) > 1)
            schema[name] = SubscriberSpec(
                address=label,
                description=self.description,
                operation=Operation(message=Message(title=f"{name}:Message", payload=payloads), bindings=None),
                bindings=None,
            )
        return schema


class OutboxPublisherSpecification(PublisherSpecification[OutboxBrokerConfig, OutboxPublisherSpecificationConfig]):
    """One channel."""

    @property
    def queue(self) -> str:
        """The queue, with the prefixes of the routers around it."""
        return f"{self._outer_config.prefix}{self.config.queue}"

    @property
    def name(self) -> str:
        """The channel's name."""
        return self.config.title_ or f"{self.queue}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel."""
        payloads = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.queue,
                description=self.config.description_,
                operation=Operation(message=Message(title=f"{self.name}:Message", payload=payloads), bindings=None),
                bindings=None,
            )
        }
