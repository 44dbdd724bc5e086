"""The way to another broker: whether it is open, and whether what goes through it arrives.

`open_then` begins something as soon as the other broker runs, in whatever order both are started. `weakness` says how a
publisher may report success although its message is lost, and what to change: it sees what FastStream's own brokers
are set to, and of brokers that it does not know it says nothing. FastStream keeps these settings to itself: all that
is read of them is read here. Called by relays, and by subscribers that forward.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_SECONDS = 5.0
"""How long another broker may take to start, or to answer, before that is reported."""
HOLD_SECONDS = 1.0
"""How long messages in flight wait for a broker that has stopped, before they are given back."""
PAUSE_SECONDS = 0.02
"""How often is looked whether a broker runs: FastStream tells nobody that one has started."""

_ALL_ACKS = 'acks=0 confirms nothing. Use KafkaBroker(…, acks="all")'
_DURABLE = "Use RabbitBroker(…, default_channel=Channel(on_return_raises=True)) and publisher(…, persist=True)"


async def open_then(
    wait: Callable[[float], Awaitable[bool]], late: Callable[[], None], begin: Callable[[], Awaitable[None]]
) -> None:
    """Begin once the other broker runs, however long that takes; say once that it is late.

    `wait` takes seconds, and answers whether it runs; where it gives up waiting for ever, nothing begins.
    """
    if not await wait(PATIENCE_SECONDS):
        late()
        if not await wait(math.inf):
            return
    await begin()


def family(thing: object) -> str:
    """The part of FastStream that something comes from, or whose subclass it is: `nats`, `rabbit`, …, or nothing."""
    for kind in type(thing).__mro__:
        package, _, rest = kind.__module__.partition(".")
        if package == "faststream":
            return rest.partition(".")[0]
    return ""


def broker_of(publisher: Any) -> Any:
    """The broker that a publisher belongs to, or None."""
    return publisher._outer_config.extra_context.get("broker")


def weakness(publisher: Any) -> str | None:
    """How this publisher loses messages without an error, and what to do; None where it waits until they are kept."""
    match family(publisher):
        case "nats" if getattr(publisher, "stream", None) is None:
            return (
                "core NATS confirms nothing, the client only buffers what it publishes. "
                'Publish to a JetStream stream: publisher(…, stream="orders")'
            )
        case "rabbit":
            return _weakness_of_rabbit(publisher)
        case "kafka" if getattr(broker_of(publisher), "_connection_kwargs", {}).get("acks") == 0:
            return _ALL_ACKS
        case "confluent" if _acks_of_confluent(publisher) == "0":
            return _ALL_ACKS
        case "redis" if hasattr(publisher, "channel"):
            return "a Redis channel keeps nothing for who does not listen. Publish to a stream: publisher(stream=…)"
        case _:
            return None


def _acks_of_confluent(publisher: Any) -> str:
    return str(publisher._outer_config.connection_config.producer_config.get("acks"))


def _weakness_of_rabbit(publisher: Any) -> str | None:
    # FastStream keeps the settings of the channel that publishers share to itself.
    manager = publisher._outer_config.channel_manager
    channel = getattr(manager, "_ChannelManagerImpl__default_channel", None)
    if channel is not None and not channel.publisher_confirms:
        return f"publisher_confirms=False confirms nothing. {_DURABLE}"
    if not publisher.publish_options.get("mandatory", True) or (channel is not None and not channel.on_return_raises):
        return f"a message that no queue takes is dropped without an error. {_DURABLE}"
    if not publisher.message_options.get("persist"):
        return f"a message without persist=True is gone when RabbitMQ restarts. {_DURABLE}"
    return None
