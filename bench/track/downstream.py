"""A NATS server as what lies behind a relay: a broker to publish with, and a bare subscriber that counts what arrives.

The question `relay` of `course` enters it before its clock starts, so that neither imports nor connecting count.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any


@contextlib.asynccontextmanager
async def downstream(server: str, subject: str, on_message: Callable[[bytes], None]) -> AsyncIterator[Any]:
    """A connected `NatsBroker`; while entered, `on_message` is called with the body of each message of the subject."""
    import nats
    from faststream.nats import NatsBroker

    async def arrived(message: Any) -> None:
        on_message(message.data)

    client = await nats.connect(server)
    await client.subscribe(subject, cb=arrived)
    # The server must know the subscriber before the first message comes.
    await client.flush()
    broker = NatsBroker(server, logger=None)
    await broker.connect()
    try:
        yield broker
    finally:
        await broker.stop()
        await client.close()
