"""What an envelope may hold, and how each thing that it may not hold is refused."""

import json
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from faststream_outbox._internal.envelope import (
    MAX_BODY_BYTES,
    MAX_DELAY,
    UNREADABLE,
    Envelope,
    checked,
    checked_queue,
    read_headers,
)
from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox._internal.schema.tables import NAME_LENGTH
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, OutboxError
from tests.cases import each

ANY_TEXT = st.text(st.characters(codec=None), max_size=NAME_LENGTH + 5)


def envelope(**fields: Any) -> Envelope:
    return Envelope(**({"queue": "orders", "body": b"{}"} | fields))


def refusal(**fields: Any) -> str:
    """The words in which `checked` refuses the fields."""
    with pytest.raises(OutboxError) as refused:
        checked(envelope(**fields))
    assert isinstance(refused.value, ValueError | TypeError)
    return str(refused.value)


@given(ANY_TEXT)
def test_text_is_taken_exactly_when_postgresql_can_store_it(text: str) -> None:
    storable = 0 < len(text) <= NAME_LENGTH and "\x00" not in text and not any(0xD800 <= ord(c) < 0xE000 for c in text)
    try:
        taken = checked(envelope(queue=text, key=text, timer_id=text))
    except InvalidMessage:
        assert not storable or text == PAUSED
    else:
        assert storable
        assert (taken.queue, taken.key, taken.timer_id) == (text, text, text)


@each("field", ["queue", "key", "timer_id"])
@each(
    ("value", "error", "words"),
    [
        ("", InvalidMessage, "must not be empty"),
        ("x" * (NAME_LENGTH + 1), InvalidMessage, "256 characters; at most 255"),
        ("a\x00b", InvalidMessage, "NUL"),
        ("a\ud800b", InvalidMessage, "lone surrogate"),
        (b"bytes", InvalidMessageType, "must be a str, not bytes"),
        (5, InvalidMessageType, "must be a str, not int"),
    ],
)
def test_refused_text_is_named(field: str, value: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"{field} .*{words}"):
        checked(envelope(**{field: value}))


class Queue(StrEnum):
    ORDERS = "orders"


class Conflict(StrEnum):
    LATER = "extend"


def test_string_enumerations_become_plain_strings() -> None:
    # psycopg writes an Enum by its member's name
    taken = checked(envelope(queue=Queue.ORDERS, timer_id="t", timer_conflict=Conflict.LATER))
    assert [(type(text), text) for text in (taken.queue, taken.conflict)] == [(str, "orders"), (str, "extend")]
    assert checked_queue(Queue.ORDERS) == "orders"


def test_what_is_no_envelope_is_refused() -> None:
    with pytest.raises(InvalidMessageType, match="Envelope"):
        checked(b"{}")  # type: ignore[arg-type]


@each("body", [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a-b-c")[::2]])
def test_body_may_be_any_bytes_and_becomes_plain_bytes(body: Any) -> None:
    payload = checked(envelope(body=body)).payload
    assert (type(payload), payload) == (bytes, b"abc")


def test_body_beyond_what_drivers_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # psycopg2 writes bytes as text of twice their size, and the server takes a gigabyte
    assert MAX_BODY_BYTES <= 250_000_000
    monkeypatch.setattr("faststream_outbox._internal.envelope.MAX_BODY_BYTES", 10)
    assert checked(envelope(body=b"x" * 10)).payload == b"x" * 10
    assert "11 bytes" in refusal(body=b"x" * 11)


@each(
    "values",
    [[1] * 1_000, [[[]]] * 501, {str(number): [] for number in range(1_000)}],
)
def test_headers_of_more_values_than_jsonb_can_hold_are_refused(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.envelope.MOST_HEADER_VALUES", 1_000)
    assert "more than 1000 values. Put them into the body" in refusal(headers={"a": values})


def test_large_headers_of_few_values_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.envelope.MOST_HEADER_VALUES", 1_000)
    assert checked(envelope(headers={"a": "," * 3_000, "b": [0] * 900})).headers is not None


def test_headers_become_json() -> None:
    headers = MappingProxyType(
        {"trace": "00-ab", "n": 1, "ratio": 0.5, "none": None, "list": [1, {"ключ": "значение"}]}
    )
    stored = checked(envelope(headers=headers)).headers
    assert stored is not None
    assert json.loads(stored) == headers


@each("text", [r"\u0000", r"\\u0000", "u0000", "\\"])
def test_text_that_looks_like_an_escaped_nul_is_not_one(text: str) -> None:
    stored = checked(envelope(headers={text: text})).headers
    assert stored is not None
    assert json.loads(stored) == {text: text}


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    return circle


def _tower(height: int) -> dict[str, Any]:
    tower: Any = "top"
    for _ in range(height):
        tower = [tower]
    return {"tower": tower}


@each("priority", [-32768, -1, 0, 1, 32767])
def test_priority_fits_a_smallint(priority: int) -> None:
    assert checked(envelope(priority=priority)).priority == priority


class _Nowhere(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None


NUL: list[Any] = [{"a\x00b": "c"}, {"a": "\x00"}, {"a": ["b", {"c": "d\\\x00"}]}, {"a": "\\\\\x00"}]
NO_JSON: list[Any] = [
    *([("a", "b")], "a=b", {1: "a"}, {None: "a"}, _circle(), _tower(100_000)),
    *({"a": value} for value in (b"bytes", {1, 2}, object(), UUID(int=1), datetime.now(UTC), 10**5000)),
    *({"a": value} for value in (float("nan"), [float("-inf")], "\udfff")),
    {"a\ud800": "b"},
]
NO_MOMENT = [
    (datetime(2030, 1, 1), "naive"),  # noqa: DTZ001 - that is the mistake
    (datetime(2030, 1, 1, tzinfo=_Nowhere()), "naive"),
    (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "outside the years"),
    (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "outside the years"),
    # asyncpg takes these for the infinities
    (datetime.max.replace(tzinfo=UTC), "outside the years"),
    (datetime.min.replace(tzinfo=UTC), "outside the years"),
    (datetime(2030, 1, 1, tzinfo=UTC).date(), "must be a datetime"),
    (1_900_000_000, "must be a datetime"),
    ("2030-01-01T00:00:00Z", "must be a datetime"),
]


@each(
    ("fields", "words"),
    [
        ({"queue": PAUSED}, "reserved"),
        *(({"body": body}, "encode it first") for body in ("text", None, {"a": 1}, [1, 2], 5)),
        *(({"headers": headers}, "NUL") for headers in NUL),
        *(({"headers": headers}, "eader") for headers in NO_JSON),
        *(({"priority": priority}, "priority") for priority in (-32769, 32768, 2**63, True, 1.0, "1", None)),
        *(({"activate_at": at}, words) for at, words in NO_MOMENT),
        *(({"activate_in": delay}, "at most") for delay in (MAX_DELAY + timedelta(microseconds=1), timedelta.max)),
        *(({"activate_in": delay}, "timedelta") for delay in (5, "1s")),
        ({"activate_in": timedelta(1), "activate_at": datetime.now(UTC)}, "not both"),
        ({"timer_id": "t", "timer_conflict": "overwrite"}, "('ignore', 'extend', 'replace')"),
        *(({"timer_conflict": conflict}, "needs a timer_id") for conflict in ("extend", "replace")),
        *(
            ({"message_id": message_id}, "message_id must be a UUID")
            for message_id in ("7d444840-9dc0-11d1-b245-5ffdce74fad2", 7, b"x" * 16)
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_in_words(fields: dict[str, Any], words: str) -> None:
    assert words in refusal(**fields)


def test_moment_is_kept_in_utc() -> None:
    at = datetime(2030, 1, 1, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    due = checked(envelope(activate_at=at)).due_at
    assert due == at
    assert due is not None
    assert due.tzinfo is UTC


@each("delay", [timedelta(0), timedelta(seconds=-5), timedelta.min])
def test_delay_that_is_over_means_now(delay: timedelta) -> None:
    assert checked(envelope(activate_in=delay)).due_in == 0.0


def test_delay_is_in_seconds() -> None:
    assert checked(envelope(activate_in=timedelta(minutes=1, milliseconds=5))).due_in == 60.005


@each(
    ("fields", "scheduled"),
    [({}, False), ({"activate_in": timedelta(0)}, True), ({"activate_at": datetime.now(UTC)}, True)],
)
def test_envelope_knows_whether_it_is_scheduled(fields: dict[str, Any], scheduled: bool) -> None:
    assert envelope(**fields).is_scheduled is scheduled


READABLE = [None, "{}", '{"a": "b", "n": 1, "x": null, "y": true, "z": 1.5}', '{"a": "' + "b" * 1000 + '"}', "[1]", "7"]


@each("text", READABLE)
def test_every_message_has_headers_of_its_own(text: str | None) -> None:
    first, second = read_headers(text), read_headers(text)
    assert first == second == (json.loads(text) if text is not None and text[0] == "{" else {})
    first["more"] = 1
    assert second == read_headers(text) != first


@each("text", ['{"a": [1]}', '{"a": {"b": [1]}}'])
def test_what_is_inside_headers_is_shared_by_no_two_messages(text: str) -> None:
    first, second = read_headers(text), read_headers(text)
    first["a"].clear()
    assert second == read_headers(text) == json.loads(text)


def test_headers_that_come_again_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text: read.append(text) or loads(text))  # type: ignore[func-returns-value]
    for number in (1, 1, 2, 1, 2):
        assert read_headers(f'{{"of": "this test", "n": {number}}}')["n"] == number
    assert len(read) == 2


@each("text", ['{"a": ' + "[" * 200 + "]" * 200 + "}", '{"a": ' + "1" * 5000 + "}", '{"a": ' + "[" * 100_000])
def test_headers_that_cannot_be_read_say_so_each_time(text: str) -> None:
    assert read_headers(text) == read_headers(text)
    assert read_headers(text).keys() <= {"a", UNREADABLE}


JSON_TEXT = st.sampled_from(["{}", "null", "1e999", '{"a": 1}', "tru", "0x1", "-", '"'])


@pytest.mark.slow
@given(st.text() | st.recursive(JSON_TEXT, lambda inner: st.lists(inner).map(lambda parts: f"[{','.join(parts)}]")))
@example("[" * 100_000)
@example('{"a": ' * 5000 + "1" + "}" * 5000)
@example('{"a": ' + "9" * 5000 + "}")
@example('{"a": NaN, "b": Infinity}')
@example(r'{"a": "\ud800"}')
@example('\ufeff{"a": 1}')
def test_headers_of_a_row_by_any_hand_are_a_dict(text: str) -> None:
    assert isinstance(read_headers(text), dict)
