"""The shop's relay: what happened to orders goes on to NATS, for whoever wants to know.

`faststream run examples.shop.relay:app`. The relay is a group of the topic: it moves past an event after
JetStream has confirmed it, and other groups read the same events.
"""

from faststream import FastStream
from faststream.nats import NatsBroker

from examples.shop.broker import broker, engine
from examples.shop.messages import EVENTS, STREAM
from examples.shop.settings import settings

nats = NatsBroker(settings.nats_url, max_reconnect_attempts=-1)
app = FastStream(broker, nats)

broker.relay(
    topic=EVENTS,
    group="to-nats",
    to=nats.publisher(EVENTS, stream=STREAM),
    lease_ttl_seconds=settings.lease_seconds,
)


@app.after_shutdown
async def close() -> None:
    """The engine is the application's: the broker does not close it."""
    await engine.dispose()
