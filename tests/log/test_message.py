"""The log's message: any JSON value or bytes, as it was."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.log.message import checked, read_payload, unique_id
from faststream_outbox.log import OutboxMessage
from tests.cases import each
from tests.log.opened import Collector, drain
from tests.log.rig import LogRig

characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = values | st.binary(max_size=40)


STRANGE: list[Any] = [
    {"type": "OrderCreated"},
    {},
    [],
    [1, {"a": [None]}],
    {"z": 1, "a": 2, "nested": {"y": [], "b": {}}},
    0,
    -0.0,
    -1.5,
    1.0,
    1e308,
    10**400,
    True,
    False,
    None,
    "",
    "NUL \x00 inside",
    {"NUL \x00 key": "\x00"},
    "\\u0000",
    "😀 é 漢 \u2028\x7f\x1f",
    "'; drop table outbox; --",
    "%s %(a)s :b {c} $1",
    b"",
    bytes(range(256)),
    b'{"not": "parsed"}',
]
"""NUL inside strings, numbers of any size, the order of keys, the point of a float."""


async def test_any_value_comes_through_the_database_as_it_was(driver_rig: LogRig) -> None:
    note = "of the payload \x00"
    token = await driver_rig.put("orders/%s", *STRANGE, note=note)
    collector = Collector()
    await drain(driver_rig.outbox, collector, "g")
    assert [repr(payload) for payload in collector.payloads] == [repr(payload) for payload in STRANGE]
    assert {(message.uri, *message.metadata.items()) for message in collector.messages} == {
        ("orders/%s", ("note", note))
    }
    assert tuple(message.position for message in collector.messages) == token.positions
    assert all(message.created_at and message.created_at.utcoffset() is not None for message in collector.messages)


@pytest.mark.slow
async def test_any_generated_value_comes_through_the_database(rig: LogRig) -> None:
    seen: list[tuple[Any, Any]] = []

    @settings(
        max_examples=150,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        database=None,
    )
    @given(payload=payloads, metadata=st.dictionaries(texts, values, max_size=3))
    def collect(payload: Any, metadata: dict[str, Any]) -> None:
        metadata.pop("event_id", None)
        metadata.pop("content-type", None)
        seen.append((payload, metadata))

    collect()
    async with rig.engine.begin() as connection:
        await rig.outbox.publish(connection, *[OutboxMessage("k", payload, dict(data)) for payload, data in seen])
    collector = Collector()
    await drain(rig.outbox, collector, "g")
    assert [(message.payload, message.metadata) for message in collector.messages] == seen


@each("payload", [bytearray(b"\x00x"), memoryview(b"\x00x")])
def test_other_kinds_of_bytes_are_bytes(payload: Any) -> None:
    assert checked(OutboxMessage("k", payload)).body == b"\x00x"


def test_uuid_in_a_payload_is_its_text() -> None:
    assert checked(OutboxMessage("k", {"id": UUID(int=1)})).payload == '{"id":"00000000-0000-0000-0000-000000000001"}'


def test_metadata_may_be_any_mapping() -> None:
    given_metadata: Mapping[str, Any] = MappingProxyType({"a": 1})
    assert checked(OutboxMessage("k", 1, given_metadata)).metadata == '{"a":1}'  # type: ignore[arg-type]


def test_event_id_that_is_a_uuid_is_that_uuid() -> None:
    given_id = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
    assert unique_id(given_id) == unique_id(str(given_id)) == unique_id(str(given_id).upper()) == given_id
    assert unique_id(None) is None


def test_event_id_that_is_no_uuid_is_made_one_that_others_can_make_too() -> None:
    assert unique_id("order-1") == uuid5(NAMESPACE_OID, "order-1")


def test_message_says_its_event_id() -> None:
    assert OutboxMessage("k", 1, {"event_id": UUID(int=5)}).event_id == str(UUID(int=5))
    assert OutboxMessage("k", 1).event_id is None


def test_bytes_that_say_that_they_are_json_are_read_as_such() -> None:
    assert read_payload(None, b'{"a":1}', {"content-type": "application/json"}) == {"a": 1}
    assert read_payload(None, b"not json", {"content-type": "application/json"}) == b"not json"
    assert read_payload(None, b'{"a":1}', {}) == b'{"a":1}'
