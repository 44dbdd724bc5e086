"""From commands to rows of a queue or a topic: the one place where the broker writes messages.

A message goes into the session given, else into the transaction of the transactional handler that is
running, else, where that is allowed, into a transaction of its own. Bodies and headers are read
from the command as late as possible, because middlewares may replace them.
"""

from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast
from uuid import UUID

from faststream.exceptions import FeatureNotSupportedException
from faststream.message import encode_message, gen_cor_id

from faststream_outbox._internal.broker._faststream import (
    BatchCodecProto,
    CodecProto,
    CustomCallable,
    DefaultCodec,
    ParserComposition,
    ProducerProto,
)
from faststream_outbox._internal.broker.backend import OutboxBrokerConfig
from faststream_outbox._internal.broker.message import CONTENT_TYPE, CORRELATION_ID, SESSION, OutboxParser
from faststream_outbox._internal.broker.response import OutboxPublishCommand, correlation_among
from faststream_outbox._internal.broker.topic import headers_of, reporting, topic_message
from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession, check_open
from faststream_outbox._internal.envelope import (
    CheckedEnvelope,
    Envelope,
    checked,
    checked_body,
    checked_headers,
    checked_message_id,
    checked_text,
    plain,
)
from faststream_outbox._internal.log.message import OutboxMessage as TopicMessage
from faststream_outbox._internal.publish.put import (
    Unprocessed,
    cancel_timer,
    cancel_timer_sync,
    fetch_unprocessed,
    publish_rows,
    publish_rows_sync,
)
from faststream_outbox._internal.publish.rows import Alike, checked_batch
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, SessionRequired

T = TypeVar("T")
Rows = Sequence[Envelope | CheckedEnvelope]


class OutboxProducer(ProducerProto[OutboxPublishCommand]):
    """Writes rows through the caller's session."""

    def __init__(
        self,
        config: OutboxBrokerConfig,
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
        if cmd.is_topic:
            ids = await self._append(cmd, [await self._topic_message(cmd)])
        else:
            ids = await self._write(cmd, [await self._row(cmd)])
        return ids[0] if ids else None

    async def publish_batch(self, cmd: OutboxPublishCommand) -> list[int]:
        """Write a message for each body, with one statement; their ids."""
        if cmd.timer_id is not None:
            msg = "publish_batch takes no timer_id: it would name every message of the batch."
            raise InvalidMessage(msg)
        if cmd.is_topic:
            ids = await self._append(cmd, await self._topic_messages(cmd))
        else:
            ids = await self._write(cmd, await self._rows(cmd))
        return [row_id for row_id in ids if row_id is not None]

    async def request(self, cmd: OutboxPublishCommand) -> Any:
        """Refuse: the answer could only come after the caller's own transaction had ended."""
        msg = (
            "An outbox cannot answer a request: the message is delivered only after your transaction has "
            "committed. Publish it, and let the handler publish its answer to another queue."
        )
        raise FeatureNotSupportedException(msg)

    async def cancel_timer(self, session: AnySession, queue: str, timer_id: str) -> bool:
        """Delete a timer that nobody holds."""
        client = self._config.client
        return await cancel_timer(session, client.table, queue=queue, timer_id=timer_id, wakeups=client.wakeups)

    def without_loop(self) -> "OutboxProducer":
        """One that publishes through sync sessions."""
        return SyncOutboxProducer(self._config)

    def cancel_timer_sync(self, session: AnySyncSession, queue: str, timer_id: str) -> bool:
        """As `cancel_timer`, through a sync session."""
        client = self._config.client
        return cancel_timer_sync(session, client.table, queue=queue, timer_id=timer_id, wakeups=client.wakeups)

    async def fetch_unprocessed(self, session: AnySession, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        return await fetch_unprocessed(session, self._config.client.table, queue=queue, limit=limit)

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
        made = checked_batch(rows)
        if session is not None:
            return await publish_rows(session, client.table, made, wakeups=client.wakeups, events=client.events)
        async with client.open_session() as own, own.begin():
            return await publish_rows(own, client.table, made, wakeups=client.wakeups, events=client.events)

    async def _append(self, cmd: OutboxPublishCommand, messages: Sequence[TopicMessage]) -> list[int | None]:
        from faststream_outbox._internal.log.append import append

        session = self._session(cmd)
        log = self._config.log
        choices = self._choices(cmd)
        with reporting(log.events, cmd.destination, messages) as committed:
            options = {"tell": log.published, "committed": committed, **choices}
            if session is not None:
                return [*(await append(session, log.tables, messages, **options)).positions]
            async with log.open_session() as own, own.begin():
                return [*(await append(own, log.tables, messages, **options)).positions]

    def _choices(self, cmd: OutboxPublishCommand) -> dict[str, Any]:
        return {"on_duplicate": cmd.on_duplicate, "strict_key_order": self._config.strict_key_order}

    async def _encode(self, body: Any) -> tuple[bytes, str | None]:
        with encoding():
            return await self.codec.encode(body, self._config.fd_config._serializer)

    async def _envelope(self, cmd: OutboxPublishCommand) -> Envelope:
        payload, content_type = await self._encode(cmd.body)
        return envelope(cmd, payload, content_type, correlation_id=cmd.correlation_id)

    async def _topic_message(self, cmd: OutboxPublishCommand) -> TopicMessage:
        payload, content_type = await self._encode(cmd.body)
        return topic_message(
            cmd, payload, content_type, correlation_id=cmd.correlation_id, key=cmd.key, message_id=cmd.message_id
        )

    async def _topic_messages(self, cmd: OutboxPublishCommand) -> list[TopicMessage]:
        generate = self._config.id_generator
        given = cmd.correlation_id or correlation_among(cmd.headers)
        return [
            topic_message(cmd, payload, content_type, correlation_id=given or generate(), key=key, message_id=own_id)
            for (payload, content_type), key, own_id in zip(
                await self._encoded(cmd), _keys(cmd), _message_ids(cmd), strict=True
            )
        ]

    async def _row(self, cmd: OutboxPublishCommand) -> Envelope | CheckedEnvelope:
        own_id = cmd.id_for_both
        if own_id is None:
            return await self._envelope(cmd)
        payload, content_type = await self._encode(cmd.body)
        if cmd.is_plain:
            return plain(cmd.destination, payload, _headers_of(content_type), cmd.key, own_id)
        return replace(envelope(cmd, payload, content_type, correlation_id=None), message_id=own_id)

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
            keys, encoded = _keys(cmd), await self._encoded(cmd)
            types = {content_type for _, content_type in encoded}
            if cmd.keys is None and cmd.message_ids is None and len(types) == 1:
                row = checked(envelope(cmd, b"", types.pop(), correlation_id=None))
                return Alike.of(row, [payload for payload, _ in encoded])
            rows = list(alike(cmd, encoded, keys))
            if cmd.message_ids is None:
                return rows
            ids = map(checked_message_id, _message_ids(cmd))
            return [row._replace(message_id=own_id) for row, own_id in zip(rows, ids, strict=True)]
        return await self._envelopes(cmd)

    async def _encoded(self, cmd: OutboxPublishCommand) -> Sequence[tuple[bytes, str | None]]:
        bodies = cmd.batch_bodies
        serializer = self._config.fd_config._serializer
        codec = self.codec
        with encoding():
            if isinstance(codec, BatchCodecProto):
                return await codec.encode_batch(bodies, serializer)
            if type(codec) is DefaultCodec:
                # As it does, without a coroutine for each.
                return [encode_message(body, serializer) for body in bodies]
            return [await codec.encode(body, serializer) for body in bodies]

    def _draws_ids_for(self, cmd: OutboxPublishCommand) -> bool:
        """Whether correlation ids are ours to make, where FastStream would draw one for each message."""
        is_given = cmd.correlation_id or CORRELATION_ID in (cmd.headers or ())
        return not is_given and self._config.id_generator is gen_cor_id


class SyncOutboxProducer(OutboxProducer):
    """The same through a sync session; its coroutines never wait for anything."""

    async def _write(self, cmd: OutboxPublishCommand, rows: Rows) -> list[int | None]:
        client = self._config.client
        session, made = _needed(cmd), checked_batch(rows)
        return publish_rows_sync(session, client.table, made, wakeups=client.wakeups, events=client.events)

    async def _append(self, cmd: OutboxPublishCommand, messages: Sequence[TopicMessage]) -> list[int | None]:
        from faststream_outbox._internal.log.append import append_sync

        session, log = _needed(cmd), self._config.log
        with reporting(log.events, cmd.destination, messages) as committed:
            token = append_sync(session, log.tables, messages, committed=committed, **self._choices(cmd))
            return [*token.positions]


def _needed(cmd: OutboxPublishCommand) -> AnySyncSession:
    if cmd.session is None:
        raise SessionRequired(_WITHOUT_SESSION)
    session: Any = cmd.session
    return cast("AnySyncSession", session)


@lru_cache(maxsize=64)
def _headers_of(content_type: str | None) -> str | None:
    """The headers of a message that has none of its own."""
    return checked_headers({CONTENT_TYPE: content_type}) if content_type else None


@contextmanager
def encoding() -> Generator[None, None, None]:
    """What a codec says of a body that it cannot encode, as an error about the message."""
    try:
        yield
    except TypeError as error:
        msg = f"The message cannot be encoded: {error}. Publish a model, dataclass, dict, list, number, text or bytes."
        raise InvalidMessageType(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"The message cannot be encoded: {error}. Publish a model, dataclass, dict, list, number, text or bytes."
        raise InvalidMessage(msg) from error


def _check_one_for_each(name: str, given: object) -> None:
    if given is not None and (not isinstance(given, Sequence) or isinstance(given, str | bytes)):
        msg = f"{name} must be a list with an entry for each message, not a {type(given).__name__}."
        raise InvalidMessageType(msg)


def _keys(cmd: OutboxPublishCommand) -> Sequence[str | None]:
    count = len(cmd.batch_bodies)
    _check_one_for_each("keys", cmd.keys)
    if cmd.keys is not None and cmd.key is not None:
        msg = "Give key or keys, not both: one for all messages of the batch, or one for each."
        raise InvalidMessage(msg)
    if cmd.keys is not None and len(cmd.keys) != count:
        msg = f"keys has {len(cmd.keys)} entries for {count} messages; give one for each."
        raise InvalidMessage(msg)
    return cmd.keys or [cmd.key] * count


def _message_ids(cmd: OutboxPublishCommand) -> Sequence[UUID | None]:
    count = len(cmd.batch_bodies)
    _check_one_for_each("message_ids", cmd.message_ids)
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
    message_id: UUID | None = cmd.message_id
    return Envelope(
        queue=cmd.destination,
        body=payload,
        headers=headers_of(cmd, content_type, correlation_id) or None,
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
