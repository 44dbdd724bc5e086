"""Publishing methods of the broker: with and without an event loop, one message or many.

All of them write in the caller's transaction and none commits; see `faststream_outbox.publish`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from faststream.response import PublishType
from faststream.types import SendableMessage
from typing_extensions import Unpack

from faststream_outbox._internal.broker.producer import OutboxProducer, without_waiting
from faststream_outbox._internal.broker.response import (
    MessageOptions,
    OutboxPublishCommand,
    destination_of,
    refuse_unknown,
)
from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.envelope import OnDuplicate, TimerConflict
from faststream_outbox._internal.publish.put import Unprocessed

if TYPE_CHECKING:
    from faststream_outbox._internal.broker._faststream import BrokerUsecase
    from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
    from faststream_outbox._internal.queue.client import OutboxClient

    Home = BrokerUsecase[Any, OutboxClient, OutboxBrokerConfig]
else:
    Home = object


class PublishingMixin(Home):
    """`publish` and its kin."""

    async def publish(
        self,
        message: SendableMessage = None,
        queue: str = "",
        *,
        topic: str | None = None,
        session: AnySession | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str | None = None,
        priority: int = 0,
        activate_in: timedelta | None = None,
        activate_at: datetime | None = None,
        timer_id: str | None = None,
        timer_conflict: TimerConflict = "ignore",
        message_id: UUID | None = None,
        on_duplicate: OnDuplicate = "error",
    ) -> int | None:
        """Write one message in the session's transaction; its id, or None where its timer_id was taken.

        To a queue, or to a topic, where the answer is its position, or None where it was left out as a duplicate.

        message: the body: a model, dataclass, dict, list, number, text or bytes.
        queue: where to; or else
        topic: the topic that every group reads.
        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        headers: names and JSON values, for the handler.
        correlation_id: as in FastStream; None draws one.
        reply_to: the queue for what the handler returns.
        key: messages of one key are handled in order.
        priority: larger numbers first; queues only.
        activate_in: deliver after this time; queues only, as is the rest.
        activate_at: deliver at this time, which has a time zone.
        timer_id: a name that is taken while the message is in the outbox; see cancel_timer.
        timer_conflict: what a taken name means: "ignore", "extend" or "replace".
        message_id: the message's own id, for handlers that must know it again; None draws one.
        on_duplicate: what a message_id means that is in the topic already: "error", or "ignore" to leave it out.
        """
        destination_of(queue, topic, is_needed=True)
        cmd = OutboxPublishCommand(
            message,
            queue=queue,
            topic=topic,
            session=session,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            key=key,
            priority=priority,
            activate_in=activate_in,
            activate_at=activate_at,
            timer_id=timer_id,
            timer_conflict=timer_conflict,
            message_id=message_id,
            on_duplicate=on_duplicate,
        )
        cmd.draw_id(self.config.id_generator)
        result: int | None = await self._basic_publish(cmd, producer=self.config.producer)
        return result

    def publish_sync(
        self,
        message: SendableMessage = None,
        queue: str = "",
        *,
        topic: str | None = None,
        session: AnySyncSession,
        reply_to: str = "",
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> int | None:
        """As `publish`, for a sync Session or Connection, with no event loop.

        message: the body: a model, dataclass, dict, list, number, text or bytes.
        queue: where to; or else
        topic: the topic that every group reads.
        session: whose transaction it belongs to: a Session, a Connection, or a DB-API connection of psycopg.
        headers: names and JSON values, for the handler.
        correlation_id: as in FastStream; None draws one.
        reply_to: the queue for what the handler returns.
        key: messages of one key are handled in order.
        priority: larger numbers first; queues only.
        activate_in: deliver after this time; queues only, as is the rest.
        activate_at: deliver at this time, which has a time zone.
        timer_id: a name that is taken while the message is in the outbox; see cancel_timer.
        timer_conflict: what a taken name means: "ignore", "extend" or "replace".
        message_id: the message's own id, for handlers that must know it again; None draws one.
        on_duplicate: what a message_id means that is in the topic already: "error", or "ignore" to leave it out.
        """
        refuse_unknown("publish_sync", options)
        destination_of(queue, topic, is_needed=True)
        cmd = OutboxPublishCommand(
            message,
            queue=queue,
            topic=topic,
            session=session,
            reply_to=reply_to,
            priority=priority,
            **options,
        )
        cmd.draw_id(self.config.id_generator)
        producer = cast("OutboxProducer", self.config.producer).without_loop()
        result: int | None = without_waiting(self._basic_publish(cmd, producer=producer))
        return result

    async def publish_batch(
        self,
        *messages: SendableMessage,
        queue: str = "",
        topic: str | None = None,
        session: AnySession | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        keys: Sequence[str | None] | None = None,
        priority: int = 0,
        activate_in: timedelta | None = None,
        activate_at: datetime | None = None,
        message_ids: Sequence[UUID | None] | None = None,
        on_duplicate: OnDuplicate = "error",
    ) -> list[int]:
        """Write many messages with one statement; their ids.

        messages: the bodies.
        queue: where to; or else
        topic: the topic that every group reads.
        session: whose transaction they belong to: an AsyncSession or AsyncConnection, or a driver's connection.
        headers: of each message.
        correlation_id: of each message; None gives each its own.
        key: of each message; or else
        keys: one for each, or None.
        priority: larger numbers first; queues only.
        activate_in: deliver after this time; queues only.
        activate_at: deliver at this time, which has a time zone.
        message_ids: one for each message, or None to draw one.
        on_duplicate: what an id means that is in the topic already: "error", or "ignore" to leave the message out.
        """
        destination_of(queue, topic, is_needed=True)
        if not messages:
            return []
        cmd = OutboxPublishCommand(
            *messages,
            queue=queue,
            topic=topic,
            session=session,
            headers=headers,
            correlation_id=correlation_id,
            key=key,
            keys=keys,
            priority=priority,
            activate_in=activate_in,
            activate_at=activate_at,
            message_ids=message_ids,
            on_duplicate=on_duplicate,
        )
        result: list[int] = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return result

    async def request(
        self,
        message: SendableMessage = None,
        queue: str = "",
        /,
        timeout: float = 0.5,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Ask and wait for the answer. Only under the test broker: an outbox delivers after your commit.

        message: the body.
        queue: whose handler is to answer.
        timeout: seconds to wait.
        headers: names and JSON values, for the handler.
        correlation_id: as in FastStream; None draws one.
        key: of the message.
        """
        cmd = OutboxPublishCommand(
            message,
            queue=queue,
            headers=headers,
            correlation_id=correlation_id,
            key=key,
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        cmd.draw_id(self.config.id_generator)
        return await self._basic_request(cmd, producer=self.config.producer)

    async def cancel_timer(self, *, queue: str, timer_id: str, session: AnySession) -> bool:
        """Take back a timer in the session's transaction; False if there is none or a worker holds it.

        queue: the timer's queue.
        timer_id: its name.
        session: as for publish.
        """
        producer = cast("OutboxProducer", self.config.producer)
        return await producer.cancel_timer(session, queue, timer_id)

    def cancel_timer_sync(self, *, queue: str, timer_id: str, session: AnySyncSession) -> bool:
        """As `cancel_timer`, for a sync session or connection.

        queue: the timer's queue.
        timer_id: its name.
        session: as for publish_sync.
        """
        producer = cast("OutboxProducer", self.config.producer)
        return producer.cancel_timer_sync(session, queue, timer_id)

    async def fetch_unprocessed(
        self, *, session: AnySession, queue: str | None = None, limit: int = 1000
    ) -> list[Unprocessed]:
        """Messages that are not finished, as they stand now; leases nothing.

        session: as for publish.
        queue: only of this one; None is of all.
        limit: how many at most.
        """
        producer = cast("OutboxProducer", self.config.producer)
        return await producer.fetch_unprocessed(session, queue, limit)
