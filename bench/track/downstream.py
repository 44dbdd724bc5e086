"""A NATS server with JetStream as what lies behind a relay: a stream of its own, and the limit of its client.

The questions `relay` and `plain_loop` of `course` enter it before their clocks start, so that neither imports nor
connecting count. What the stream has is asked of the server: no subscriber takes CPU of the process that is measured.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

BODY = b'{"order_id": 12345, "amount": 99.5}'
PAUSE = 0.02
CONFIRM_SECONDS = 10.0


class Downstream:
    """An empty stream with one subject, and a connected `NatsBroker`."""

    def __init__(self, broker: Any, client: Any) -> None:
        self.broker = broker
        self.subject = f"relayed.{uuid4().hex}"
        self.stream = uuid4().hex
        self._client = client
        self._manager = client.jsm()

    async def make(self) -> None:
        """Create the stream, on disk as by default."""
        await self._manager.add_stream(name=self.stream, subjects=[self.subject])

    async def drop(self) -> None:
        """Delete it, with all that it holds."""
        await self._manager.delete_stream(self.stream)

    async def has(self, messages: int) -> None:
        """Wait until it holds so many."""
        while True:
            found = await self._manager.stream_info(self.stream)
            if found.state.messages >= messages:
                return
            await asyncio.sleep(PAUSE)

    async def publish(self, ids: Sequence[str], in_flight: int) -> None:
        """The limit: the same client by hand, as many in flight, with a relay's body and headers, until all confirm."""
        context = (await self.broker.connect()).jetstream(publish_async_max_pending=in_flight)
        confirms = []
        for one in ids:
            headers = {
                "content-type": "application/json",
                "correlation_id": one,
                "message_id": one,
                "Nats-Msg-Id": f"{one}:{self.subject}",
            }
            confirms.append(await context.publish_async(self.subject, BODY, stream=self.stream, headers=headers))
        await asyncio.wait_for(asyncio.gather(*confirms), CONFIRM_SECONDS)


@contextlib.asynccontextmanager
async def downstream(server: str) -> AsyncIterator[Downstream]:
    """A stream for as long as this is entered."""
    import nats
    from faststream.nats import NatsBroker

    client = await nats.connect(server)
    broker = NatsBroker(server, logger=None)
    await broker.connect()
    found = Downstream(broker, client)
    await found.make()
    try:
        yield found
    finally:
        await found.drop()
        await broker.stop()
        await client.close()
