"""To NATS: a JetStream confirms each message; core NATS confirms nothing, and a flush is all there is.

JetStream drops what it has had within its `duplicate_window`, by `Nats-Msg-Id`. Where the broker's own `publish` would
do no more than call the client, the client is called here, for all messages together: that takes half the time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from faststream.nats import NatsBroker
from nats import errors
from nats.aio.client import Client
from nats.js import errors as js_errors

from faststream_outbox._internal.relay.brokers.jetstream import Confirms, Outgoing
from faststream_outbox._internal.relay.brokers.publishing import (
    Address,
    Publishing,
    adds_nothing,
    by_itself,
    text_headers,
)
from faststream_outbox._internal.relay.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO, RelayMessage
from faststream_outbox._internal.relay.transport import SENT, Refused, Result, Sent, Unavailable

NATS_MESSAGE_ID = "Nats-Msg-Id"
CONFIRM_SECONDS = 10.0
"""How long a confirm may take. FastStream's own half a second is for one message at a time."""
_OF_THE_MESSAGE = (errors.MaxPayloadError, errors.BadSubjectError, errors.BadHeaderError, js_errors.BadRequestError)


class NatsTransport(Publishing):
    """A NATS broker."""

    def __init__(self, broker: Any, publisher: Any | None, address: Callable[[str], Address] | None) -> None:
        super().__init__(broker, publisher, address)
        stream = getattr(publisher, "stream", None)
        self._stream: str | None = None if stream is None else stream.name
        self._subject: str | None = None
        self._opening = asyncio.Lock()
        self._confirms: Confirms | None = None

    def weakness(self) -> str | None:
        """Core NATS keeps nothing, also where URIs say the subject."""
        if self._stream is not None:
            return None
        return (
            "core NATS keeps nothing for who does not listen, and confirms nothing. "
            'Publish to a JetStream stream: publisher("shop.>", stream="shop")'
        )

    async def start(self) -> None:
        """Belong to the running event loop."""
        self._opening = asyncio.Lock()
        self._confirms = None

    async def stop(self) -> None:
        """Listen for no more confirms; the application stops its broker."""
        confirms, self._confirms = self._confirms, None
        if confirms is not None:
            await confirms.close()

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Publish them all at once, and wait for the confirms of the stream, or for the server's to have read them."""
        if self.is_test:
            return await super().send(messages)
        client: Client = await self.broker.connect()
        if not client.is_connected:
            # The client would take them into its buffer, and be silent until the time is over.
            return [Unavailable(errors.ConnectionReconnectingError())] * len(messages)
        if self._stream is not None:
            results = await (self._send_together(client, messages) if self._is_bare else super().send(messages))
            if all(isinstance(result, Sent) for result in results):
                return results
            looked_into = zip(results, messages, strict=True)
            return [await self._looked_into(result, client, message) for result, message in looked_into]
        connections = client.stats["reconnects"]
        results = await super().send(messages)
        try:
            await client.flush(timeout=int(CONFIRM_SECONDS))
        except (errors.Error, OSError) as error:
            return [_unless_refused(result, error) for result in results]
        if client.stats["reconnects"] != connections:
            lost = errors.StaleConnectionError()
            return [_unless_refused(result, lost) for result in results]
        return results

    async def publish(self, message: RelayMessage) -> None:
        """Publish one message; to a stream: wait for its confirm."""
        subject = self._subject_of(message)
        headers = text_headers(message)
        given: dict[str, Any] = {}
        if self._stream is not None:
            headers.setdefault(NATS_MESSAGE_ID, _duplicate_id(message, subject))
            given = {"stream": self._stream, "timeout": CONFIRM_SECONDS}
        to, headers, reply_to = self.shortcut(headers, message.reply_to)
        await to.publish(
            message.body,
            subject=subject,
            headers=headers,
            correlation_id=message.correlation_id,
            reply_to=reply_to,
            **given,
        )

    @property
    def _is_bare(self) -> bool:
        """Whether publishing by the broker is publishing by its client."""
        publisher, broker = self._publisher, self.broker
        is_own = publisher is None or publisher._outer_config is broker.config
        return is_own and getattr(broker.publish, "__func__", None) is NatsBroker.publish and adds_nothing(broker)

    async def _send_together(self, client: Client, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        errors_of = await (await self._confirms_of(client)).publish(messages, self._prepared, CONFIRM_SECONDS)
        return [SENT if error is None else self.judge(error) for error in errors_of]

    async def _confirms_of(self, client: Client) -> Confirms:
        async with self._opening:
            if self._confirms is None or self._confirms.client is not client:
                # A broker that was stopped and started has another.
                self._confirms = await Confirms.open(client, str(self._stream))
            return self._confirms

    def _prepared(self, message: RelayMessage) -> Outgoing:
        """What the broker would give its client: the same headers, in the same order of precedence."""
        subject = self._subject_of(message)
        headers = {CONTENT_TYPE: "", CORRELATION_ID: message.correlation_id}
        reply_to = message.reply_to or getattr(self._publisher, "reply_to", "")
        if reply_to:
            headers[REPLY_TO] = reply_to
        headers |= getattr(self._publisher, "headers", {})
        headers |= text_headers(message)
        if NATS_MESSAGE_ID not in message.headers:
            headers[NATS_MESSAGE_ID] = _duplicate_id(message, subject)
        return subject, headers

    def _subject_of(self, message: RelayMessage) -> str:
        where = self.where(message)
        if where is not None:
            return where[0]
        if self._subject is None:
            # Late: a router's prefix is known once it is included. FastStream makes it anew for each message.
            self._subject = str(self._to.subject.template)
        return self._subject

    def judge(self, error: Exception) -> Refused | Unavailable:
        """NATS refuses what is too large or misnamed; all its other errors are about the server."""
        if isinstance(error, _OF_THE_MESSAGE):
            return Refused(error)
        if isinstance(error, errors.Error | OSError | TimeoutError):
            return Unavailable(error)
        return by_itself(error)

    async def _looked_into(self, result: Result, client: Client, message: RelayMessage) -> Result:
        """Whether a message that no stream took can ever be taken: a server that just starts answers like that too."""
        if not (isinstance(result, Unavailable) and isinstance(result.error, js_errors.NoStreamResponseError)):
            return result
        subject = self._subject_of(message)
        try:
            await client.jetstream().find_stream_name_by_subject(subject)
        except js_errors.NotFoundError:
            return Refused(LookupError(f"no stream has the subject {subject!r}"))
        except (errors.Error, OSError):
            return result
        return result


def _duplicate_id(message: RelayMessage, subject: str) -> str:
    # What a stream drops as a duplicate must be one: not what two relays make of one message.
    return f"{message.id}:{message.group}:{subject}" if message.group else f"{message.id}:{subject}"


def _unless_refused(result: Result, error: Exception) -> Result:
    return Unavailable(error) if isinstance(result, Sent) else result
