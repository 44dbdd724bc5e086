"""From `to=` to transports: a publisher of FastStream's, a transport, or a mapping from URI schemes to brokers.

What cannot work is refused here, at the line that registers the relay, with what to do. Called by `make`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from faststream_outbox._internal.relay.brokers.publishing import Address, Publishing
from faststream_outbox._internal.relay.confirming import family
from faststream_outbox._internal.relay.transport import Transport
from faststream_outbox._internal.relay.uri import address_of, checked_scheme
from faststream_outbox.errors import InvalidOption, InvalidOptionType

_TRANSPORTS = {
    "nats": "NatsTransport",
    "rabbit": "RabbitTransport",
    "redis": "RedisTransport",
    "kafka": "KafkaTransport",
    "confluent": "ConfluentTransport",
}
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
    made: Transport = getattr(import_module(f"faststream_outbox._internal.relay.brokers.{name}"), _TRANSPORTS[name])(
        None if publisher is not None else to, publisher, address
    )
    return made
