"""Addresses in the URIs of messages; from now on `faststream_outbox.relay.address_of`."""

from faststream_outbox._internal.relay.target import address_of, checked_scheme, scheme_of

__all__ = ["address_of", "checked_scheme", "scheme_of"]
