"""URIs, their slots and their keys.

A slot is one of 256 virtual partitions, fixed for ever by an unsigned hash of the full URI that is the
same in Python and in SQL: `get_byte(decode(md5(convert_to(uri, 'UTF8')), 'hex'), 7)`. A topic with a key
is a URI too: `orders/order-1`. Pure functions. Used by publishing, reading and the broker.
"""

from functools import lru_cache
from hashlib import md5

from faststream_outbox._internal.envelope import checked_text
from faststream_outbox._internal.options import is_encodable
from faststream_outbox._internal.schema.log_tables import LAST_SLOT, URI_LENGTH
from faststream_outbox.errors import InvalidMessage

SLOTS = LAST_SLOT + 1


@lru_cache(maxsize=65536)
def slot_of(uri: str) -> int:
    """The slot of a URI."""
    given: object = uri
    if not isinstance(given, str) or not is_encodable(given):
        msg = f"uri must be a str without lone surrogates, not {given!r}."
        raise InvalidMessage(msg)
    return md5(uri.encode(), usedforsecurity=False).digest()[7]


def checked_uri(value: object, what: str = "uri") -> str:
    """`value` as a URI that PostgreSQL can store and index."""
    return _within(checked_text(value, what, length=URI_LENGTH), what, URI_LENGTH)


def checked_filter(value: object) -> str:
    """`value` as a URI to read by; empty is every URI."""
    return "" if value == "" else checked_uri(value)


def checked_group(value: object) -> str:
    """`value` as the name of a consumer group; empty is a name too."""
    return "" if value == "" else _within(checked_text(value, "consumer_group"), "consumer_group", 255)


def _within(text: str, what: str, length: int) -> str:
    size = len(text.encode())
    if size > length:
        msg = f"{what} has {size} bytes; at most {length} fit: {text[:40]!r}…"
        raise InvalidMessage(msg)
    return text


def prefix_of(uri: str) -> str:
    """What a URI starts with that a filter matches, besides the filter itself."""
    return uri if uri.endswith("/") else f"{uri}/"


def matches(uri: str, wanted: str) -> bool:
    """Whether a filter matches a URI: itself, or what lies below it."""
    return not wanted or uri == wanted or uri.startswith(prefix_of(wanted))


def uri_of(topic: str, key: str | None = None) -> str:
    """The URI of a topic's key; a slash in the key does not make another topic of it."""
    if key is None:
        return checked_uri(topic, "topic")
    escaped = checked_text(key, "key").replace("%", "%25").replace("/", "%2F")
    return checked_uri(f"{prefix_of(checked_uri(topic, 'topic'))}{escaped}", "topic and key")


def key_of(uri: str, topic: str) -> str | None:
    """The key of a topic's URI, if it has one."""
    prefix = prefix_of(topic)
    if not uri.startswith(prefix):
        return None
    return uri[len(prefix) :].replace("%2F", "/").replace("%25", "%")


def partition(index: int, count: int) -> tuple[int, int]:
    """The first and the last slot of one of `count` equal shares; together they are every slot, once."""
    return SLOTS * index // count, SLOTS * (index + 1) // count - 1
