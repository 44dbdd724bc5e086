"""To RabbitMQ: publisher confirms, persistent messages, and none that no queue takes goes unnoticed.

An error of one message closes the channel, and with it fails whatever else is under way on it, also of other batches.
Whose it was is known only of a message that was alone there: so after such an error each message that failed is sent
again alone, and `Turns` says who may publish at the same time, many together or one alone. The guilty one is refused,
the others are not to blame. A channel takes a moment to close, and fails with the same error whoever comes meanwhile:
so nobody is guilty who has not failed twice. It belongs to one event loop. Made by `target`, called by a line.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aio_pika import exceptions
from aiormq import exceptions as channel_errors
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from faststream_outbox._internal.relay.brokers.publishing import Address, Publishing, by_itself
from faststream_outbox._internal.relay.transport import Refused, RelayMessage, Result, Sent, Unavailable
from faststream_outbox.errors import Unroutable


class Turns:
    """Lets many run together until one must be alone; who comes meanwhile waits."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Run beside others."""
        async with self._gate:
            self._running += 1
            self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Run after all who run now, and before all who come later."""
        async with self._gate:
            await self._idle.wait()
            yield


REOPEN_SECONDS = 0.2
_GUILT = (channel_errors.ChannelNotFoundEntity, channel_errors.ChannelPreconditionFailed)
"""What closes a channel because of one message: an exchange that is not there, a body that is too large."""
_CLOSED = (channel_errors.ChannelClosed, channel_errors.ChannelInvalidStateError)
_DOWN = (
    exceptions.AMQPError,
    channel_errors.AMQPError,
    channel_errors.ChannelInvalidStateError,
    OSError,
    TimeoutError,
    RuntimeError,
)
_CONFIRMS = "publisher_confirms=False confirms nothing. Use RabbitBroker(…, default_channel=Channel())"


class RabbitTransport(Publishing):
    """A RabbitMQ broker."""

    def __init__(self, broker: Any, publisher: Any | None, address: Callable[[str], Address] | None) -> None:
        super().__init__(broker, publisher, address)
        self._turns = Turns()

    def weakness(self) -> str | None:
        """Only a channel without confirms: persistence and what comes back are seen to here."""
        # FastStream keeps the settings of the channel that publishers share to itself.
        manager: Any = getattr(getattr(self._to, "_outer_config", None), "channel_manager", None)
        channel = getattr(manager, "_ChannelManagerImpl__default_channel", None)
        return _CONFIRMS if channel is not None and not channel.publisher_confirms else None

    async def start(self) -> None:
        """Belong to the running event loop."""
        self._turns = Turns()

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Publish them all at once, and wait for all confirms."""
        async with self._turns.together():
            results = list(await super().send(messages))
        if any(_is_closed(result) for result in results):
            # By one of these, or by whoever else publishes there. The client opens it again by itself.
            await asyncio.sleep(REOPEN_SECONDS)
            for place, result in enumerate(results):
                if isinstance(result, Unavailable) or _is_closed(result):
                    results[place] = await self._alone(messages[place])
                    if isinstance(results[place], Unavailable):
                        break
        return results

    async def _alone(self, message: RelayMessage) -> Result:
        """What becomes of a message when no other is under way."""
        async with self._turns.alone():
            result = await self._one(message)
            if _is_closed(result):
                await asyncio.sleep(REOPEN_SECONDS)
                result = await self._one(message)
            return result

    async def publish(self, message: RelayMessage) -> Result | None:
        """Publish one message, and wait until RabbitMQ has confirmed it or sent it back."""
        where = self.where(message)
        given: dict[str, Any] = {} if where is None else {"exchange": where[0] or None, "routing_key": where[1]}
        frame = await self._to.publish(
            message.body,
            headers=message.headers,
            correlation_id=message.correlation_id,
            message_id=message.id,
            content_type=message.content_type,
            reply_to=message.reply_to or None,
            timestamp=message.created_at,
            persist=True,
            mandatory=True,
            **given,
        )
        if isinstance(frame, DeliveredMessage):
            returned = frame.delivery
            said = returned.reply_text if isinstance(returned, Basic.Return) else "returned"
            return Refused(Unroutable(f"{said}: no queue takes it"))
        return None

    def judge(self, error: Exception) -> Refused | Unavailable:
        """What came back or closed the channel is the message's own; a nack is a queue that is full, or an outage."""
        if isinstance(error, channel_errors.PublishError):
            return Refused(Unroutable(f"{error}: no queue takes it"))
        if isinstance(error, _GUILT):
            return Refused(error)
        if isinstance(error, _DOWN):
            return Unavailable(error)
        return by_itself(error)


def _is_closed(result: Result) -> bool:
    return not isinstance(result, Sent) and isinstance(result.error, _CLOSED)
