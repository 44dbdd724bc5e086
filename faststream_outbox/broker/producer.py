"""From commands to envelopes to rows: the one place where the broker writes messages.

A message goes into the session given, else into the transaction of the transactional handler that is
running, else, where that is allowed, into a transaction of its own. Bodies and headers are read
from the command as late as possible, because middlewares may replace them.
"""

from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from faststream.exceptions import FeatureNotSupportedException
from faststream.message import gen_cor_id

from faststream_outbox.broker._faststream import (
    BatchCodecProto,
    CodecProto,
    CustomCallable,
    DefaultCodec,
    ParserComposition,
    ProducerProto,
)
from faststream_outbox.broker.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO
from faststream_outbox.broker.parser import OutboxParser
from faststream_outbox.broker.response import OutboxPublishCommand, correlation_among
from faststream_outbox.broker.stand_in import stand_in
from faststream_outbox.envelope import (
    CheckedEnvelope,
    Envelope,
    checked,
    checked_body,
    checked_message_id,
    checked_text,
)
from faststream_outbox.errors import InvalidMessage, SessionRequired
from faststream_outbox.events import Events
from faststream_outbox.events.table import Published
from faststream_outbox.log.append import append, append_sync
from faststream_outbox.log.message import EVENT_ID
from faststream_outbox.log.message import OutboxMessage as TopicMessage
from faststream_outbox.log.slots import uri_of
from faststream_outbox.overview import Unprocessed, fetch_unprocessed
from faststream_outbox.publish import cancel_timer, cancel_timer_sync, publish, publish_sync
from faststream_outbox.sql.through import AnySession, AnySyncSession, check_open

if TYPE_CHECKING:
    from faststream_outbox.broker.config import OutboxBrokerConfig

T = TypeVar("T")
Rows = Sequence[Envelope | CheckedEnvelope]

SESSION = "outbox_session"
"""Where a transactional handler's session stands in FastStream's context."""


class OutboxProducer(ProducerProto[OutboxPublishCommand]):
    """Writes rows through the caller's session."""

    def __init__(
        self,
        config: "OutboxBrokerConfig",
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
    ) -> None:
        default = OutboxParser()
        self._config = config
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)

    @property
    def codec(self) -> CodecProto:  # type: ignore[override]  # read late: the broker's codec may be set later
        """How bodies become bytes."""
        return self._config.broker_codec or DefaultCodec()

    async def publish(self, cmd: OutboxPublishCommand) -> int | None:
        """Write one message; its id, or None where its timer_id was taken."""
        other = self._stand_in()
        if other is not None:
            return await other.publish(cmd)
        made = [await self._envelope(cmd)]
        ids = await (self._append(cmd, made) if cmd.is_topic else self._write(cmd, made))
        return ids[0] if ids else None

    async def publish_batch(self, cmd: OutboxPublishCommand) -> list[int]:
        """Write a message for each body, with one statement; their ids."""
        if cmd.timer_id is not None:
            msg = "publish_batch takes no timer_id: it would name every message of the batch."
            raise InvalidMessage(msg)
        other = self._stand_in()
        if other is not None:
            return await other.publish_batch(cmd)
        ids = await (
            self._append(cmd, await self._envelopes(cmd)) if cmd.is_topic else self._write(cmd, await self._rows(cmd))
        )
        return [row_id for row_id in ids if row_id is not None]

    async def request(self, cmd: OutboxPublishCommand) -> Any:
        """Refuse: the answer could only come after the caller's own transaction had ended."""
        other = self._stand_in()
        if other is not None:
            return await other.request(cmd)
        msg = (
            "An outbox cannot answer a request: the message is delivered only after your transaction has "
            "committed. Publish it, and let the handler publish its answer to another queue."
        )
        raise FeatureNotSupportedException(msg)

    async def cancel_timer(self, session: AnySession, queue: str, timer_id: str) -> bool:
        """Delete a timer that nobody holds."""
        return await cancel_timer(session, self._config.client.table, queue=queue, timer_id=timer_id)

    def without_loop(self) -> "OutboxProducer":
        """One that publishes through sync sessions."""
        other = self._stand_in()
        return SyncOutboxProducer(self._config) if other is None else other.without_loop()

    def cancel_timer_sync(self, session: AnySyncSession, queue: str, timer_id: str) -> bool:
        """As `cancel_timer`, through a sync session."""
        return cancel_timer_sync(session, self._config.client.table, queue=queue, timer_id=timer_id)

    async def fetch_unprocessed(self, session: AnySession, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        return await fetch_unprocessed(session, self._config.client.table, queue=queue, limit=limit)

    def _stand_in(self) -> "OutboxProducer | None":
        other = stand_in(self._config)
        return None if other is None or other.producer is self else other.producer

    def _session(self, cmd: OutboxPublishCommand) -> AnySession | None:
        """The transaction that a command belongs to; None if it may have one of its own."""
        of_handler: Any = self._config.fd_config.context.get_local(SESSION)
        session: Any = of_handler if cmd.session is None else cmd.session
        check_open(session)
        if cmd.may_commit and session is not of_handler:
            # Dependencies of the handler have ended: what is written now would never be committed.
            raise InvalidMessage(_SESSION_OF_A_DEPENDENCY)
        if session is None and not (self._config.autocommit or cmd.may_commit):
            raise SessionRequired(_WITHOUT_SESSION)
        return cast("AnySession | None", session)

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        client = self._config.client
        session = self._session(cmd)
        if session is not None:
            return await publish(session, client.table, *rows, wakeups=client.wakeups, events=client.events)
        async with client.open_session() as own, own.begin():
            return await publish(own, client.table, *rows, wakeups=client.wakeups, events=client.events)

    async def _append(self, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]) -> list[int | None]:
        session = self._session(cmd)
        log = self._config.log
        messages = [as_topic_message(each) for each in envelopes]
        choices = self._choices(cmd)
        with telling(log.events, cmd.destination, envelopes):
            if session is not None:
                return [*(await append(session, log.tables, messages, tell=log.published, **choices)).positions]
            async with log.open_session() as own, own.begin():
                return [*(await append(own, log.tables, messages, tell=log.published, **choices)).positions]

    def _choices(self, cmd: OutboxPublishCommand) -> dict[str, Any]:
        return {"on_duplicate": cmd.on_duplicate, "strict_key_order": self._config.strict_key_order}

    async def _envelope(self, cmd: OutboxPublishCommand) -> Envelope:
        payload, content_type = await self.codec.encode(cmd.body, self._config.fd_config._serializer)
        return envelope(cmd, payload, content_type, correlation_id=cmd.correlation_id)

    async def _envelopes(self, cmd: OutboxPublishCommand) -> list[Envelope]:
        generate = self._config.id_generator
        given = cmd.correlation_id or correlation_among(cmd.headers)
        return [
            replace(
                envelope(cmd, payload, content_type, correlation_id=given or generate(), key=key), message_id=own_id
            )
            for (payload, content_type), key, own_id in zip(
                await self._encoded(cmd), _keys(cmd), _message_ids(cmd), strict=True
            )
        ]

    async def _rows(self, cmd: OutboxPublishCommand) -> Rows:
        if self._draws_ids_for(cmd):
            rows = list(alike(cmd, await self._encoded(cmd), _keys(cmd)))
            if cmd.message_ids is None:
                return rows
            ids = map(checked_message_id, _message_ids(cmd))
            return [row._replace(message_id=own_id) for row, own_id in zip(rows, ids, strict=True)]
        return await self._envelopes(cmd)

    async def _encoded(self, cmd: OutboxPublishCommand) -> Sequence[tuple[bytes, str | None]]:
        bodies = cmd.batch_bodies
        serializer = self._config.fd_config._serializer
        codec = self.codec
        if isinstance(codec, BatchCodecProto):
            return await codec.encode_batch(bodies, serializer)
        return [await codec.encode(body, serializer) for body in bodies]

    def _draws_ids_for(self, cmd: OutboxPublishCommand) -> bool:
        """Whether correlation ids are ours to make, where FastStream would draw one for each message."""
        is_given = cmd.correlation_id or CORRELATION_ID in (cmd.headers or ())
        return not is_given and self._config.id_generator is gen_cor_id


class SyncOutboxProducer(OutboxProducer):
    """The same through a sync session; its coroutines never wait for anything."""

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        client = self._config.client
        return publish_sync(_needed(cmd), client.table, *rows, wakeups=client.wakeups, events=client.events)

    async def _append(self, cmd: OutboxPublishCommand, envelopes: Sequence[Envelope]) -> list[int | None]:
        session, log = _needed(cmd), self._config.log
        messages = [as_topic_message(each) for each in envelopes]
        with telling(log.events, cmd.destination, envelopes):
            return [*append_sync(session, log.tables, messages, **self._choices(cmd)).positions]


def _needed(cmd: OutboxPublishCommand) -> AnySyncSession:
    if cmd.session is None:
        raise SessionRequired(_WITHOUT_SESSION)
    session: Any = cmd.session
    return cast("AnySyncSession", session)


def _keys(cmd: OutboxPublishCommand) -> Sequence[str | None]:
    count = len(cmd.batch_bodies)
    if cmd.keys is not None and cmd.key is not None:
        msg = "Give key or keys, not both: one for all messages of the batch, or one for each."
        raise InvalidMessage(msg)
    if cmd.keys is not None and len(cmd.keys) != count:
        msg = f"keys has {len(cmd.keys)} entries for {count} messages; give one for each."
        raise InvalidMessage(msg)
    return cmd.keys or [cmd.key] * count


def _message_ids(cmd: OutboxPublishCommand) -> Sequence[UUID | None]:
    count = len(cmd.batch_bodies)
    if cmd.message_ids is not None and len(cmd.message_ids) != count:
        msg = f"message_ids has {len(cmd.message_ids)} entries for {count} messages; give one for each, or None."
        raise InvalidMessage(msg)
    return cmd.message_ids or [None] * count


_SESSION_OF_A_DEPENDENCY = (
    "The session of this OutboxResponse may have ended with the dependencies of its handler. It is used while they are "
    "open if the response has a queue or a topic of its own: queue=…. Else leave the session out: the message is then "
    "published in the transaction of a transactional handler, or in one of its own."
)
_WITHOUT_SESSION = (
    "publish needs the session whose transaction the message belongs to: publish(body, queue=…, session=session). "
    "Only then do your data and the message commit together, or not at all. A handler with transactional=True has "
    "one, which publish finds by itself. To publish in transactions of their own, say so once: "
    "OutboxBroker(engine, outbox_table=…, autocommit=True)."
)


def envelope(
    cmd: OutboxPublishCommand,
    payload: bytes,
    content_type: str | None,
    *,
    correlation_id: str | None,
    key: str | None = None,
) -> Envelope:
    """The command with an encoded body, as an envelope."""
    headers = dict(cmd.headers or {})
    given = headers.get(CONTENT_TYPE)
    if content_type and given is not None and given != content_type:
        msg = f"The header {CONTENT_TYPE!r} says {given!r}, but the body was encoded as {content_type!r}."
        raise InvalidMessage(msg)
    if content_type:
        headers[CONTENT_TYPE] = content_type
    known = correlation_among(headers)
    if known is not None and correlation_id is not None and known != correlation_id:
        msg = f"correlation_id is {correlation_id!r}, but the header says {known!r}. Give it once."
        raise InvalidMessage(msg)
    if correlation_id is not None:
        headers[CORRELATION_ID] = correlation_id
    if cmd.reply_to:
        headers[REPLY_TO] = cmd.reply_to
    message_id: UUID | None = cmd.message_id
    return Envelope(
        queue=cmd.destination,
        body=payload,
        headers=headers or None,
        key=cmd.key if key is None else key,
        priority=cmd.priority,
        activate_in=cmd.activate_in,
        activate_at=cmd.activate_at,
        timer_id=cmd.timer_id,
        timer_conflict=cmd.timer_conflict,
        message_id=message_id,
    )


def alike(
    cmd: OutboxPublishCommand, encoded: Sequence[tuple[bytes, str | None]], keys: Sequence[str | None]
) -> Iterator[CheckedEnvelope]:
    """Messages that differ in body and perhaps key: what they share is checked and encoded once.

    They carry no correlation id: each is known by its own id, which is its correlation id when it is read.
    """
    seen: dict[str | None, CheckedEnvelope] = {}
    for (payload, content_type), key in zip(encoded, keys, strict=True):
        row = seen.get(content_type)
        if row is None:
            row = seen[content_type] = checked(envelope(cmd, b"", content_type, correlation_id=None))
        row = row.with_content(checked_body(payload), row.headers)
        yield row if key is None or key is cmd.key else row._replace(key=checked_text(key, "key"))


@contextmanager
def telling(events: Events, topic: str, envelopes: Sequence[Envelope]) -> Generator[None, None, None]:
    """Tell of messages that are written to a topic, or could not be."""
    began = perf_counter()
    error: BaseException | None = None
    try:
        yield
    except BaseException as problem:
        error = problem
        raise
    finally:
        if Published in events:
            size = sum(len(each.body) for each in envelopes)
            events.emit(Published(topic, len(envelopes), size, perf_counter() - began, error))


def as_topic_message(envelope: Envelope) -> TopicMessage:
    """An envelope as a message of the log; refuses what only queues can do."""
    given = {
        "priority": envelope.priority or None,
        "activate_in": envelope.activate_in,
        "activate_at": envelope.activate_at,
        "timer_id": envelope.timer_id,
    }
    for name, value in given.items():
        if value is not None:
            msg = f"A topic takes no {name}: every group reads its messages in the order of their commits. Use a queue."
            raise InvalidMessage(msg)
    metadata = dict(envelope.headers or {})
    if envelope.message_id is not None:
        metadata[EVENT_ID] = str(envelope.message_id)
    return TopicMessage(uri_of(envelope.queue, envelope.key), envelope.body, metadata)


def without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    msg = "publish_sync cannot wait: a codec or a publish middleware of this broker awaits something. Use publish."
    raise FeatureNotSupportedException(msg)
