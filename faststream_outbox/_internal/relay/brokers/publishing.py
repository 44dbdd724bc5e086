"""What transports to FastStream's brokers share: they publish with the broker's own `publish`, one task per message.

So the application's security, codecs, middlewares and telemetry of that broker apply. Starting and stopping it is the
application's business. Subclasses say how one message is published, and what an error means. Where `publish` adds
nothing to what a client does, a subclass may use the client.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from faststream import BaseMiddleware

from faststream_outbox._internal.relay.gate import broker_of, family, weakness
from faststream_outbox._internal.relay.transport import (
    CONTENT_TYPE,
    MESSAGE_ID,
    SENT,
    Refused,
    RelayMessage,
    Result,
    Unavailable,
)

Address = tuple[str, str]
"""Where a URI points: the topic, subject, stream or exchange; and the rest of it."""


class Publishing(ABC):
    """A FastStream publisher as a transport; or its broker, with the address taken from each message's URI.

    broker: the FastStream broker; None where there is a publisher, which knows it once its router is included.
    publisher: publishes in the broker's place, with its own settings.
    address: takes the address from a URI; None sends everything where the publisher says.
    """

    keeps_order = False
    is_started_by_others = True
    """FastStream's application starts the broker, and stops it."""

    def __init__(self, broker: Any, publisher: Any | None, address: Callable[[str], Address] | None) -> None:
        self._broker = broker
        self._to = publisher if publisher is not None else broker
        self._publisher = publisher
        self._address = address
        self.name = family(self._to)

    @property
    def broker(self) -> Any:
        """The broker; None while the publisher's router is in none."""
        return self._broker if self._publisher is None else broker_of(self._publisher)

    def weakness(self) -> str | None:
        """How it loses messages without an error, and what to do; None where it waits until they are kept."""
        return None if self._publisher is None else weakness(self._publisher)

    @property
    def is_test(self) -> bool:
        """Whether a test broker of FastStream's stands in."""
        return bool(getattr(self._publisher, "is_test", False))

    @property
    def is_open(self) -> bool:
        """Whether the broker runs; not its connection alone: it declares streams and exchanges after that."""
        return self.is_test or bool(getattr(self.broker, "running", False))

    @property
    def missing(self) -> str:
        """What to do while it does not."""
        name = self.name if self.broker is None else type(self.broker).__name__
        return (
            f"{name} was not started. Give both brokers to the application, "
            "FastStream(outbox_broker, other_broker), or call the other's start()"
        )

    async def start(self) -> None:
        """Nothing: the application starts its broker."""
        return

    async def stop(self) -> None:
        """Nothing: the application stops its broker."""
        return

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Publish them all at once, and wait for all confirms."""
        if len(messages) == 1:
            return [await self._one(messages[0])]
        return await asyncio.gather(*map(self._one, messages))

    async def _one(self, message: RelayMessage) -> Result:
        try:
            return await self.publish(message) or SENT
        except Exception as error:  # noqa: BLE001 - each message has its own fate
            return self.judge(error)

    @abstractmethod
    async def publish(self, message: RelayMessage) -> Result | None:
        """Publish one message, and wait until it is confirmed; None if it is."""

    @abstractmethod
    def judge(self, error: Exception) -> Refused | Unavailable:
        """Whether an error is about the message or about the broker."""

    def shortcut(self, headers: dict[str, Any], reply_to: str) -> tuple[Any, dict[str, Any], str]:
        """What to publish with: the broker itself, in less time, where the publisher has no more than its own settings.

        A router's publisher has the router's middlewares too, and a test broker counts the calls of publishers.
        """
        publisher, broker = self._publisher, self.broker
        if publisher is None:
            return broker, headers, reply_to
        if self.is_test or publisher._outer_config is not broker.config:
            return publisher, headers, reply_to
        return (
            broker,
            {**publisher.headers, **headers} if publisher.headers else headers,
            reply_to or publisher.reply_to,
        )

    def where(self, message: RelayMessage) -> Address | None:
        """Where its URI points; None where the publisher knows it."""
        return None if self._address is None else self._address(message.uri)


def adds_nothing(broker: Any) -> bool:
    """Whether `publish` leaves bytes and headers as they are, and nobody hears of it: no codec, and no middleware.

    Middlewares that only see what is consumed, as FastStream's own for the log, do not count.
    """
    return broker.config.broker_codec is None and all(
        getattr(make(None, context=broker.context).publish_scope, "__func__", None) is BaseMiddleware.publish_scope
        for make in broker.middlewares
    )


def text_headers(message: RelayMessage) -> dict[str, str]:
    """Headers for brokers that have texts only, and no other place for the id and the type of the body."""
    headers = message.text_headers()
    headers[MESSAGE_ID] = message.id
    if message.content_type is not None:
        headers[CONTENT_TYPE] = message.content_type
    return headers


def by_itself(error: Exception) -> Refused:
    """An error of neither the broker nor its client, as of a middleware: tried again, and counted."""
    return Refused(error, again=True)
