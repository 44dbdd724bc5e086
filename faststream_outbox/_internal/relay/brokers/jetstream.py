"""Confirms of JetStream for many messages at once: one inbox for all of them, and one future for a batch.

The client's own `publish` makes a task, a timer and a future for each message. Here each only has a number, which is
the last part of the subject that its confirm comes to. Used by `nats`; belongs to one connected client.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from nats import errors
from nats.aio.client import NO_RESPONDERS_STATUS, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import errors as js_errors
from nats.js.api import Header, PubAck

from faststream_outbox._internal.relay.message import RelayMessage

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
