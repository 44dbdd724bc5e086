"""To NATS: a JetStream confirms each message; core NATS confirms nothing, and a flush is all there is.

JetStream drops what it has had within its `duplicate_window`, by `Nats-Msg-Id`. Where the broker's own `publish` would
do no more than call the client, the client is called here, for all messages together: that takes half the time.

The client's own `publish` makes a task, a timer and a future for each message. `Confirms` have one inbox for all of
them and one future for a batch; a message only has a number, the last part of the subject that its confirm comes to.
They belong to one connected client.

Made by `target`, called by a line.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from faststream.nats import NatsBroker
from nats import errors
from nats.aio.client import NO_RESPONDERS_STATUS, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import errors as js_errors
from nats.js.api import Header, PubAck

from faststream_outbox._internal.relay.brokers.publishing import (
    Address,
    Publishing,
    adds_nothing,
    by_itself,
    text_headers,
)
from faststream_outbox._internal.relay.transport import (
    CONTENT_TYPE,
    CORRELATION_ID,
    REPLY_TO,
    SENT,
    Refused,
    RelayMessage,
    Result,
    Sent,
    Unavailable,
)

Outgoing = tuple[str, dict[str, str]]
"""A subject, and headers."""
AT_ONCE = 100
"""How many are handed to the client before it may write, and read the first confirms."""


class Confirms:
    """Publishes to one stream, and hears what it says."""

    def __init__(self, client: Client, stream: str) -> None:
        self.client = client
        self._stream = stream
        self._confirm = f'{{"stream":{json.dumps(stream)},'.encode()
        self._inbox = f"{client.new_inbox()}."
        self._subscription: Subscription | None = None
        self._next = 0
        self._waiting: dict[int, _Batch] = {}

    @classmethod
    async def open(cls, client: Client, stream: str) -> Self:
        """Listen for confirms; after a reconnect the client does so again by itself."""
        made = cls(client, stream)
        made._subscription = await client.subscribe(f"{made._inbox}*", cb=made._arrived)
        return made

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            with suppress(errors.Error, OSError):
                await self._subscription.unsubscribe()

    async def publish(
        self, messages: Sequence[RelayMessage], prepare: Callable[[RelayMessage], Outgoing], timeout: float
    ) -> list[Exception | None]:
        """Publish them all, and wait until each is confirmed or the time is over; None for what the stream has."""
        batch = _Batch(self._next, len(messages))
        self._next += len(messages)
        try:
            for number, message in enumerate(messages, batch.first):
                self._waiting[number] = batch
                try:
                    subject, headers = prepare(message)
                    headers[Header.EXPECTED_STREAM.value] = self._stream
                    await self.client.publish(subject, message.body, f"{self._inbox}{number}", headers)
                except Exception as error:  # noqa: BLE001 - each message has its own fate
                    self._answer(number, error)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(batch.done, timeout)
        finally:
            for number in range(batch.first, batch.first + len(messages)):
                self._waiting.pop(number, None)
        return batch.answers

    async def _arrived(self, said: Msg) -> None:
        # Others than the stream can answer too: only its confirm is one.
        is_confirm = said.data.startswith(self._confirm) and b'"error"' not in said.data
        self._answer(int(said.subject[len(self._inbox) :]), None if is_confirm else _error_of(said))

    def _answer(self, number: int, error: Exception | None) -> None:
        batch = self._waiting.pop(number, None)
        if batch is not None:
            batch.answer(number, error)


class _Batch:
    """Messages that were published together, by their numbers."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.answers: list[Exception | None] = [errors.TimeoutError()] * count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def answer(self, number: int, error: Exception | None) -> None:
        """What became of one."""
        self.answers[number - self.first] = error
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


def _error_of(said: Msg) -> Exception | None:
    """What the client's own `publish` would have raised."""
    if said.headers and said.headers.get(Header.STATUS.value) == NO_RESPONDERS_STATUS:
        return js_errors.NoStreamResponseError()
    try:
        answer: dict[str, Any] = json.loads(said.data)
        if "error" in answer:
            js_errors.APIError.from_error(answer["error"])
        PubAck.from_response(answer)
    except Exception as error:  # noqa: BLE001 - it is the answer
        return error
    return None


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
