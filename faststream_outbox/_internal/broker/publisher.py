"""Publishers: an object to publish through, a decorator for handlers, and the one for responses.

What a handler returns is published before its message is settled: in the handler's own transaction
where it is transactional, else in a transaction of its own, so that a crash in between publishes again.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from faststream.response import PublishCommand, PublishType
from faststream.types import PublisherMiddleware, SendableMessage
from typing_extensions import Unpack

from faststream_outbox._internal.broker._faststream import (
    FakePublisher,
    ProducerProto,
    PublisherSpecification,
    PublisherUsecase,
    PublisherUsecaseConfig,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.message import CORRELATION_ID
from faststream_outbox._internal.broker.response import MessageOptions, OutboxPublishCommand, refuse_unknown
from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.envelope import header_mapping


@dataclass(kw_only=True)
class OutboxPublisherConfig(PublisherUsecaseConfig):
    """What a publisher is made of."""

    _outer_config: OutboxBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream does
    queue: str
    is_topic: bool = False
    headers: dict[str, Any] = field(default_factory=dict)
    reply_to: str = ""
    key: str | None = None
    priority: int = 0


class OutboxPublisher(PublisherUsecase):
    """Publishes to one queue, or to one topic."""

    _outer_config: OutboxBrokerConfig

    def __init__(self, config: OutboxPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._queue = config.queue
        self.is_topic: bool = config.is_topic
        self.headers: dict[str, Any] = config.headers
        self.reply_to: str = config.reply_to
        self.key: str | None = config.key
        self.priority: int = config.priority

    @property
    def queue(self) -> str:
        """The queue or the topic, with the prefixes of the routers around it."""
        return f"{self._outer_config.prefix}{self._queue}"

    async def publish(
        self,
        message: SendableMessage = None,
        queue: str = "",
        *,
        session: AnySession | None = None,
        reply_to: str = "",
        priority: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> int | None:
        """Write one message in the session's transaction; its id, or None where its timer_id was taken.

        queue: another one than the publisher's.
        headers: added to the publisher's; these win. The rest is as for `OutboxBroker.publish`.
        """
        refuse_unknown("publish", options)
        options["headers"] = self._merged(options.get("headers"), options.get("correlation_id"))
        if options.get("key") is None:
            options["key"] = self.key
        cmd = OutboxPublishCommand(
            message,
            queue=queue or ("" if self.is_topic else self.queue),
            topic=self.queue if self.is_topic and not queue else None,
            session=session,
            reply_to=reply_to or self.reply_to,
            priority=self.priority if priority is None else priority,
            **options,
        )
        cmd.draw_id(self._outer_config.id_generator)
        result: int | None = await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())
        return result

    def _merged(self, headers: dict[str, Any] | None, correlation_id: str | None) -> dict[str, Any]:
        """Headers of a call and of the publisher; a correlation id of the call stands before the publisher's."""
        ours = self.headers
        if correlation_id and CORRELATION_ID in ours:
            ours = {name: value for name, value in ours.items() if name != CORRELATION_ID}
        return ours | header_mapping(headers or {})

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        # A copy: the same response may go to several publishers, each with a queue of its own.
        ours = copy(OutboxPublishCommand.from_cmd(cmd))
        ours.headers = self._merged(cmd.headers, ours.correlation_id)
        ours.destination, ours.is_topic = self.queue, self.is_topic
        ours.reply_to = ours.reply_to or self.reply_to
        ours.key = self.key if ours.key is None else ours.key
        ours.priority = ours.priority or self.priority
        ours.message_id, ours.on_duplicate = None, "error"
        ours.may_commit = True
        await self._basic_publish(ours, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self,
        message: SendableMessage,
        queue: str = "",
        *,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        timeout: float = 0.5,
    ) -> Any:
        """Ask and wait for the answer; only under the test broker."""
        own = self._merged(headers, correlation_id)
        cmd = OutboxPublishCommand(
            message,
            queue=queue or self.queue,
            headers=own,
            correlation_id=correlation_id,
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        cmd.draw_id(self._outer_config.id_generator)
        return await self._basic_request(cmd, producer=self._outer_config.producer)


class OutboxResponsePublisher(FakePublisher):
    """Publishes an `OutboxResponse` to the queue or the topic that it names, and nothing else."""

    def patch_command(self, cmd: PublishCommand) -> OutboxPublishCommand:
        """The command on its way to its queue."""
        ours = copy(OutboxPublishCommand.from_cmd(super().patch_command(cmd)))
        ours.may_commit = True
        return ours

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> Any:
        if not (isinstance(cmd, OutboxPublishCommand) and cmd.is_response and cmd.destination):
            return None
        return await super()._publish(cmd, _extra_middlewares=_extra_middlewares)


class OutboxReplyPublisher(FakePublisher):
    """Publishes any result to the `reply_to` of the message."""

    def __init__(self, producer: ProducerProto[Any], reply_to: str) -> None:
        super().__init__(producer=producer)
        self.reply_to = reply_to

    def patch_command(self, cmd: PublishCommand) -> OutboxPublishCommand:
        """The command on its way to who asked."""
        ours = copy(OutboxPublishCommand.from_cmd(super().patch_command(cmd)))
        ours.destination, ours.is_topic = self.reply_to, False
        ours.message_id, ours.on_duplicate = None, "error"
        ours.may_commit = True
        return ours
