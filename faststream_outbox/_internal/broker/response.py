"""Commands to publish, and the response that a handler returns to publish a message of its own."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from faststream.message import gen_cor_id
from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response

from faststream_outbox._internal.broker.message import CORRELATION_ID
from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.envelope import OnDuplicate, TimerConflict, header_mapping
from faststream_outbox.errors import InvalidMessage


def check_destination(queue: str, topic: str | None, *, is_needed: bool = False) -> None:
    """Refuse a message that would go to a queue and to a topic or, where that `is_needed`, to neither."""
    if is_needed and not queue and topic is None:
        msg = "Say where to: queue='orders' for one worker, or topic='shop' for every group that reads it."
        raise InvalidMessage(msg)
    if queue and topic:
        msg = f"Publish to the queue {queue!r} or to the topic {topic!r}, not to both."
        raise InvalidMessage(msg)


def correlation_among(headers: Mapping[str, Any] | None) -> str | None:
    """The correlation id that headers carry, if any."""
    value = None if headers is None else headers.get(CORRELATION_ID)
    return None if value is None else str(value)


class OutboxPublishCommand(BatchPublishCommand):
    """What the producer needs to know of a message, or of many that differ only in their bodies."""

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        queue: str = "",
        topic: str | None = None,
        session: AnySession | AnySyncSession | None = None,
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
        keys: Sequence[str | None] | None = None,
        message_ids: Sequence[UUID | None] | None = None,
        timeout: float = 0.5,
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        # A copy: middlewares write into it.
        own = header_mapping(headers) if headers else None
        super().__init__(
            message,
            *messages,
            destination=queue if topic is None else topic,
            correlation_id=correlation_id or correlation_among(own),
            headers=own,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        check_destination(queue, topic)
        if topic is None and on_duplicate != "error":
            msg = "on_duplicate is for topics: a queue has no message_id that is taken. See timer_id."
            raise InvalidMessage(msg)
        self.is_topic = topic is not None
        """Whether the destination is a topic."""
        self.session = session
        self.key = key
        self.priority = priority
        self.activate_in = activate_in
        self.activate_at = activate_at
        self.timer_id = timer_id
        self.timer_conflict: TimerConflict = timer_conflict
        self.message_id = message_id
        self.on_duplicate: OnDuplicate = on_duplicate
        self.keys = keys
        self.message_ids = message_ids
        self.timeout = timeout
        self.is_response = False
        self.has_own_headers = bool(headers)
        """Whether it came with headers, before publishers added theirs."""
        self.may_commit = False
        """Whether, without a session, it may be written in a transaction of its own: what a handler returned."""
        self.drawn_id: UUID | None = None
        """The id that was drawn for it, of which its correlation id is the text."""

    def draw_id(self, generate: Callable[[], str]) -> None:
        """Give it a correlation id, unless it has one; what FastStream draws can be the message's own id too."""
        if self.correlation_id:
            return
        if generate is gen_cor_id:
            self.drawn_id = uuid4()
            self.correlation_id = str(self.drawn_id)
        else:
            self.correlation_id = generate()

    @property
    def id_for_both(self) -> UUID | None:
        """The drawn id, where it still is the correlation id and can be the message's own: stored once."""
        drawn = self.drawn_id
        if drawn is None or self.is_topic or self.message_id is not None or self.correlation_id != str(drawn):
            return None
        return None if CORRELATION_ID in (self.headers or ()) else drawn

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing but where to, what, and perhaps of which key."""
        return (
            not self.headers
            and not self.reply_to
            and self.activate_in is None
            and self.activate_at is None
            and self.timer_id is None
            and self.timer_conflict == "ignore"
            and type(self.priority) is int
            and self.priority == 0
        )

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "OutboxPublishCommand":
        """The command itself if it is ours, else one with what any command says."""
        if isinstance(cmd, OutboxPublishCommand):
            return cmd
        body, more = cls._parse_bodies(cmd.body, batch=batch)
        key = cmd.get_publish_key()
        return cls(
            body,
            *more,
            queue=cmd.destination,
            headers=cmd.headers,
            # FastStream has given it the message's where it had none; what a handler put among the headers is its own.
            correlation_id=correlation_among(cmd.headers) or cmd.correlation_id,
            reply_to=cmd.reply_to,
            key=key if isinstance(key, str) else None,
            _publish_type=cmd.publish_type,
        )


class OutboxResponse(Response):
    """Returned by a handler: publish this message, in this session's transaction.

    Without a session it goes into the transaction of a transactional handler, or else into one of its own.
    Without a queue and a topic it goes where the handler's publishers send it. The rest is as for
    `OutboxBroker.publish`; message_id and on_duplicate hold for its own queue or topic alone.
    """

    def __init__(
        self,
        body: Any,
        *,
        queue: str = "",
        topic: str | None = None,
        session: AnySession | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        priority: int = 0,
        activate_in: timedelta | None = None,
        activate_at: datetime | None = None,
        timer_id: str | None = None,
        timer_conflict: TimerConflict = "ignore",
        message_id: UUID | None = None,
        on_duplicate: OnDuplicate = "error",
    ) -> None:
        own = header_mapping(headers) if headers else None
        super().__init__(body, headers=own, correlation_id=correlation_id or correlation_among(own))
        check_destination(queue, topic)
        if message_id is not None and not (queue or topic):
            msg = (
                "The message_id is that of the message in a queue or a topic of its own: name it, "
                "OutboxResponse(…, queue='orders', message_id=…). Publishers give theirs other ids."
            )
            raise InvalidMessage(msg)
        self.queue = queue or topic or ""
        """Where to: the queue, or the topic."""
        self.topic = topic
        self.session = session
        self.key = key
        self.priority = priority
        self.activate_in = activate_in
        self.activate_at = activate_at
        self.timer_id = timer_id
        self.timer_conflict: TimerConflict = timer_conflict
        self.message_id = message_id
        self.on_duplicate: OnDuplicate = on_duplicate
        self.is_published = False

    def get_publish_key(self) -> str | None:
        """The key, for publishers of other brokers too."""
        return self.key

    def as_publish_command(self) -> OutboxPublishCommand:
        """The response as a command; one that was published already carries no queue any more."""
        command = OutboxPublishCommand(
            self.body,
            queue="" if self.is_published or self.topic is not None else self.queue,
            topic=None if self.is_published else self.topic,
            # It may have ended with the handler's dependencies.
            session=None if self.is_published else self.session,
            headers=dict(self.headers),
            correlation_id=self.correlation_id,
            key=self.key,
            priority=self.priority,
            activate_in=self.activate_in,
            activate_at=self.activate_at,
            timer_id=self.timer_id,
            timer_conflict=self.timer_conflict,
            message_id=None if self.is_published else self.message_id,
            on_duplicate="error" if self.is_published else self.on_duplicate,
        )
        command.is_response = not self.is_published
        return command
