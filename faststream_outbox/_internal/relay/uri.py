"""URIs of topics as addresses of other brokers: `kafka://orders/order-1` is topic `orders`, key `order-1`.

Pure functions. Used by `target` and the transports.
"""

from faststream_outbox.errors import InvalidOption

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
