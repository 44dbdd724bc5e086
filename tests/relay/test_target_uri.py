"""Addresses in URIs: where a message goes, and what a scheme is."""

import pytest

from faststream_outbox.errors import InvalidOption
from faststream_outbox.relay import address_of
from faststream_outbox.relay.uri import checked_scheme, scheme_of
from tests.cases import each

ADDRESSES = {
    "kafka://orders/order-1": ("kafka", "orders", "order-1"),
    "amqp://shop": ("amqp", "shop", ""),
    "NATS://shop.orders/a/b": ("nats", "shop.orders", "a/b"),
    "kafka://orders/a%2Fb%2525": ("kafka", "orders", "a/b%25"),
    "orders": (None, "", ""),
}


@each("uri", ADDRESSES)
def test_a_uri_is_a_scheme_a_place_and_a_key(uri: str) -> None:
    assert (scheme_of(uri), *address_of(uri)) == ADDRESSES[uri]


def test_schemes_are_compared_in_small_letters() -> None:
    assert checked_scheme("Amqp+TLS") == "amqp+tls"


@each("scheme", ["", "kafka://", "a b", None, 1])
def test_what_is_no_scheme_is_refused(scheme: object) -> None:
    with pytest.raises(InvalidOption, match="takes schemes"):
        checked_scheme(scheme)
