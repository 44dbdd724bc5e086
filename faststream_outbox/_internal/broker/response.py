"""What may be said of a message, the commands that say it, and the response that a handler returns to publish one.

`MessageOptions` and `DEFAULTS` are the one list of it: whoever publishes takes them whole and passes them on whole.
Only where a message goes, and whether that fits, is checked here; the producer checks and encodes the rest, because
middlewares may change a command before. Made by the broker, its publishers and handlers, read by the producer.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast
from uuid import UUID, uuid4

from faststream.message import gen_cor_id
from faststream.response import BatchPublishCommand, PublishCommand, PublishType, Response
from typing_extensions import Unpack

from faststream_outbox._internal.broker.message import CORRELATION_ID
from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.envelope import OnDuplicate, TimerConflict, header_mapping
from faststream_outbox.errors import InvalidMessage


class MessageOptions(TypedDict, total=False):
    """What may be said of a message besides its body, its session and where it goes.

    What each means stands at `OutboxBroker.publish`, which takes them all. `priority` and `reply_to` are none of these:
    what leaving them out means is not the same everywhere.
    """

    headers: dict[str, Any] | None
    correlation_id: str | None
    key: str | None
    activate_in: timedelta | None
    activate_at: datetime | None
    timer_id: str | None
    timer_conflict: TimerConflict
    message_id: UUID | None
    on_duplicate: OnDuplicate


DEFAULTS: MessageOptions = {
    "headers": None,
    "correlation_id": None,
    "key": None,
    "activate_in": None,
    "activate_at": None,
    "timer_id": None,
    "timer_conflict": "ignore",
    "message_id": None,
    "on_duplicate": "error",
}
"""What is not said."""


def refuse_unknown(call: str, options: Mapping[str, Any]) -> None:
    """Refuse what is no option of a message, in the words of Python, for a call that takes them whole."""
    if not options.keys() <= DEFAULTS.keys():
        unknown = next(name for name in options if name not in DEFAULTS)
        msg = f"{call}() got an unexpected keyword argument {unknown!r}"
        raise TypeError(msg)


def destination_of(queue: str, topic: str | None, *, is_needed: bool) -> tuple[str, bool]:
    """Where a message goes, and whether that is a topic; not to both and, where it `is_needed`, not nowhere."""
    if is_needed and not queue and topic is None:
        msg = "Say where to: queue='orders' for one worker, or topic='shop' for every group that reads it."
        raise InvalidMessage(msg)
    if queue and topic:
        msg = f"Publish to the queue {queue!r} or to the topic {topic!r}, not to both."
        raise InvalidMessage(msg)
    return (queue, False) if topic is None else (topic, True)


def correlation_among(headers: Mapping[str, Any] | None) -> str | None:
    """The correlation id that headers carry, if any."""
    value = None if headers is None else headers.get(CORRELATION_ID)
    return None if value is None else str(value)


class _WithOptions:
    """What `MessageOptions` say of a message, as attributes."""

    def _take(self, options: MessageOptions) -> tuple[dict[str, Any] | None, str | None]:
        """Take the options, or else their defaults; the headers and the correlation id for FastStream's constructor."""
        given: Any = DEFAULTS | options
        self.key: str | None = given["key"]
        self.activate_in: timedelta | None = given["activate_in"]
        self.activate_at: datetime | None = given["activate_at"]
        self.timer_id: str | None = given["timer_id"]
        self.timer_conflict: TimerConflict = given["timer_conflict"]
        self.message_id: UUID | None = given["message_id"]
        self.on_duplicate: OnDuplicate = given["on_duplicate"]
        headers = options.get("headers")
        # A copy: middlewares write into it.
        own = header_mapping(headers) if headers else None
        return own, options.get("correlation_id") or correlation_among(own)

    @property
    def options(self) -> MessageOptions:
        """The options, for whoever passes them on."""
        return cast("MessageOptions", {name: getattr(self, name) for name in DEFAULTS})


class OutboxPublishCommand(_WithOptions, BatchPublishCommand):
    """What the producer needs to know of a message, or of many that differ only in their bodies."""

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        queue: str = "",
        topic: str | None = None,
        session: AnySession | AnySyncSession | None = None,
        reply_to: str = "",
        priority: int = 0,
        keys: Sequence[str | None] | None = None,
        message_ids: Sequence[UUID | None] | None = None,
        timeout: float = 0.5,
        _publish_type: PublishType = PublishType.PUBLISH,
        **options: Unpack[MessageOptions],
    ) -> None:
        refuse_unknown("OutboxPublishCommand", options)
        headers, correlation_id = self._take(options)
        destination, is_topic = destination_of(queue, topic, is_needed=False)
        super().__init__(
            message,
            *messages,
            destination=destination,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        if not is_topic and self.on_duplicate != "error":
            msg = "on_duplicate is for topics: a queue has no message_id that is taken. See timer_id."
            raise InvalidMessage(msg)
        self.is_topic = is_topic
        """Whether the destination is a topic."""
        self.session = session
        self.priority = priority
        self.keys = keys
        self.message_ids = message_ids
        self.timeout = timeout
        self.is_response = False
        self.has_own_headers: bool = headers is not None
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
            self.correlation_id: str = generate()

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


class OutboxResponse(_WithOptions, Response):
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
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        refuse_unknown("OutboxResponse", options)
        headers, correlation_id = self._take(options)
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        destination_of(queue, topic, is_needed=False)
        if self.message_id is not None and not (queue or topic):
            msg = (
                "The message_id is that of the message in a queue or a topic of its own: name it, "
                "OutboxResponse(…, queue='orders', message_id=…). Publishers give theirs other ids."
            )
            raise InvalidMessage(msg)
        self.queue: str = queue or topic or ""
        """Where to: the queue, or the topic."""
        self.topic = topic
        self.session = session
        self.priority = priority
        self.is_published = False

    def get_publish_key(self) -> str | None:
        """The key, for publishers of other brokers too."""
        return self.key

    def as_publish_command(self) -> OutboxPublishCommand:
        """The response as a command; one that was published already is for publishers alone, without its own place."""
        if self.is_published:
            # Nor its session, which may have ended with the handler's dependencies.
            command = OutboxPublishCommand(self.body, priority=self.priority, **self.options | _FOR_PUBLISHERS)
        else:
            command = OutboxPublishCommand(
                self.body,
                queue="" if self.topic is not None else self.queue,
                topic=self.topic,
                session=self.session,
                priority=self.priority,
                **self.options,
            )
        command.is_response = not self.is_published
        return command


_FOR_PUBLISHERS: MessageOptions = {"message_id": None, "on_duplicate": "error"}
"""What is one message's, and not that of others that publishers make of the same response."""
