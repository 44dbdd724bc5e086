"""From `to=` to transports: a publisher of FastStream's, a transport, or a mapping from URI schemes to brokers.

What cannot work is refused here, at the line that registers the relay, with what to do. URIs of topics are read as
addresses of other brokers: `kafka://orders/order-1` is topic `orders`, key `order-1`. Called by `relay` and by the
transports.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from faststream_outbox._internal.relay.brokers.publishing import Address, Publishing
from faststream_outbox._internal.relay.gate import family
from faststream_outbox._internal.relay.transport import Transport
from faststream_outbox.errors import InvalidOption, InvalidOptionType

SEPARATOR = "://"


def scheme_of(uri: str) -> str | None:
    """The scheme of a URI, if it has one."""
    scheme, found, _ = uri.partition(SEPARATOR)
    return scheme.lower() if found else None


def address_of(uri: str) -> tuple[str, str]:
    """The place that a URI names, and the rest behind its first slash: a key, or a routing key."""
    _, _, rest = uri.partition(SEPARATOR)
    place, _, key = rest.partition("/")
    return place, key.replace("%2F", "/").replace("%25", "%")


def checked_scheme(scheme: object) -> str:
    """`scheme` as the name of one, without what follows it."""
    if not isinstance(scheme, str) or not scheme or not scheme.replace("+", "").replace("-", "").isalnum():
        msg = f"A relay by URI takes schemes such as 'kafka' or 'amqp', not {scheme!r}: to={{'kafka': kafka_broker}}."
        raise InvalidOption(msg)
    return scheme.lower()


_TRANSPORTS = {
    "nats": ("nats", "NatsTransport"),
    "rabbit": ("rabbit", "RabbitTransport"),
    "redis": ("redis", "RedisTransport"),
    "kafka": ("kafka", "KafkaTransport"),
    "confluent": ("kafka", "ConfluentTransport"),
}
"""By family of FastStream's brokers: the module of `brokers`, and the class. Imported when one is made."""
_ROUTES = (
    "to= is a publisher (nats.publisher('orders', stream='shop')), a transport (an object with start, stop and send), "
    "or a mapping from schemes to brokers ({'kafka': kafka_broker})"
)


def transport_to(to: object) -> Transport:
    """The transport that a publisher, or a transport, stands for."""
    if _is_publisher(to):
        return _publishing(to, address=None)
    if family(to) in _TRANSPORTS:
        msg = (
            f"A {type(to).__name__} does not say where to send: give to=broker.publisher('orders'), "
            "or a mapping, to={'kafka': broker}, for a topic whose URIs say it."
        )
        raise InvalidOption(msg)
    if isinstance(to, Transport):
        return to
    msg = f"A relay cannot send to a {type(to).__name__}: {_ROUTES}."
    raise InvalidOptionType(msg)


def transports_by_scheme(to: Mapping[Any, Any]) -> dict[str, Transport]:
    """The transport of each scheme; its broker, or a publisher that lends its settings, gets addresses of URIs."""
    if not to:
        msg = f"A relay needs to know where to send: {_ROUTES}."
        raise InvalidOption(msg)
    found: dict[str, Transport] = {}
    for scheme, target in to.items():
        name = checked_scheme(scheme)
        if _is_publisher(target) or family(target) in _TRANSPORTS:
            found[name] = _publishing(target, address=address_of)
        elif isinstance(target, Transport):
            found[name] = target
        else:
            msg = f"to={{{name!r}: …}} is a FastStream broker, a publisher or a transport, not {target!r}."
            raise InvalidOptionType(msg)
    return found


def weakness_of(transport: object) -> str | None:
    """How a transport loses messages without an error, and what to do; None where it waits until they are kept."""
    return transport.weakness() if isinstance(transport, Publishing) else None


def _is_publisher(to: object) -> bool:
    return family(to) in _TRANSPORTS and callable(to) and hasattr(to, "publish")


def _publishing(to: Any, address: Callable[[str], Address] | None) -> Transport:
    name = family(to)
    publisher = to if _is_publisher(to) else None
    if publisher is not None and "Batch" in type(publisher).__name__:
        msg = (
            f"A {type(publisher).__name__} sends all messages under one id and one set of headers. "
            "Leave out batch=True: the relay sends many at once by itself."
        )
        raise InvalidOption(msg)
    module, kind = _TRANSPORTS[name]
    make = getattr(import_module(f"faststream_outbox._internal.relay.brokers.{module}"), kind)
    made: Transport = make(None if publisher is not None else to, publisher, address)
    return made
