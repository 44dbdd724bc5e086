"""Slots, URIs and filters: the same in Python and in SQL, for any text."""

from collections.abc import Iterator
from itertools import pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import URL

from faststream_outbox._internal.log.sharing.slots import (
    BEGINNING,
    SLOTS,
    Span,
    checked_filter,
    checked_group,
    checked_uri,
    filters_of,
    key_of,
    matches,
    prefix_of,
    runs,
    slot_of,
    slots_of,
    uri_of,
)
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from tests.cases import each
from tests.publish.ways import plain

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60)
odd = st.text(st.sampled_from("ab/%_\\:.*?|&'\"{}üÄ €"), min_size=1, max_size=8)
on_server = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=200
)


@pytest.fixture
def connection(database_url: URL) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        yield connection


@on_server
@given(uri=texts)
def test_slot_is_the_same_in_sql(connection: psycopg.Connection[tuple[object, ...]], uri: str) -> None:
    statement = "select get_byte(decode(md5(convert_to(%s::text, 'UTF8')), 'hex'), 7)"
    assert connection.execute(statement, (uri,)).fetchone() == (slot_of(uri),)


def test_every_slot_is_reached() -> None:
    assert {slot_of(f"kafka://orders/{number}") for number in range(5000)} == set(range(SLOTS))


def test_slots_are_used_evenly() -> None:
    counts = [0] * SLOTS
    for number in range(SLOTS * 400):
        counts[slot_of(f"order-{number}")] += 1
    assert 280 < min(counts) <= max(counts) < 520


def test_slot_of_a_uri_is_what_it_always_was() -> None:
    """Slots are stored: another hash would move keys to other readers, behind cursors of their own."""
    assert [slot_of(uri) for uri in ("k", "kafka://orders/1", "ü")] == [148, 147, 205]


@on_server
@given(uri=odd, wanted=odd)
def test_filter_matches_as_the_statement_does(
    connection: psycopg.Connection[tuple[object, ...]], uri: str, wanted: str
) -> None:
    for subject in (uri, wanted + uri, wanted + "/" + uri):
        statement = "select %(w)s::text = '' or %(u)s::text = %(w)s::text or starts_with(%(u)s::text, %(p)s::text)"
        row = connection.execute(statement, {"u": subject, "w": wanted, "p": prefix_of(wanted)}).fetchone()
        assert row == (matches(subject, wanted),)


@each(
    ("uri", "wanted", "is_matched"),
    [
        ("x://a_b/1", "x://a_b", True),
        ("x://aXb/1", "x://a_b", False),
        ("x://a%b/1", "x://a%b", True),
        ("x://a%%b/1", "x://a%b", False),
        ("x://a\\b/1", "x://a\\b", True),
        ("orders", "orders", True),
        ("orders/1", "orders", True),
        ("orders-2", "orders", False),
        ("orders/1", "orders/", True),
        ("orders", "orders/", False),
        ("anything", "", True),
    ],
)
def test_filter_matches_itself_and_what_lies_below(uri: str, wanted: str, is_matched: bool) -> None:
    assert matches(uri, wanted) is is_matched


@given(topic=odd.filter(lambda topic: not topic.endswith("/")), key=st.one_of(odd, texts))
def test_key_of_a_topic_comes_back(topic: str, key: str) -> None:
    uri = uri_of(topic, key)
    assert key_of(uri, topic) == key
    assert matches(uri, topic)


@given(key=odd)
def test_key_makes_no_topic_of_its_own(key: str) -> None:
    assert "/" not in uri_of("orders", key).removeprefix("orders/")


@given(first=odd, second=odd)
def test_keys_that_differ_have_uris_that_differ(first: str, second: str) -> None:
    assert (uri_of("orders", first) == uri_of("orders", second)) is (first == second)


def test_topic_without_a_key_has_none() -> None:
    assert key_of(uri_of("orders"), "orders") is None


def test_key_of_a_topic_that_ends_with_a_slash_comes_back() -> None:
    assert key_of(uri_of("orders/", "1"), "orders/") == "1"


@each("wrong", ["", "nul\x00", "\ud800", "a" * 1025, "€" * 342])
def test_text_that_cannot_be_a_uri_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidMessage):
        checked_uri(wrong)


@each("wrong", [None, 1, b"k", ["k"]])
def test_what_is_no_text_is_refused(wrong: object) -> None:
    for check in (checked_uri, checked_filter, checked_group):
        with pytest.raises(InvalidMessageType):
            check(wrong)


@each("longest", ["a" * 1024, "€" * 341])
def test_longest_uri_fits(longest: str) -> None:
    assert checked_uri(longest) == longest


def test_empty_is_every_uri_and_the_group_without_a_name() -> None:
    assert (checked_filter(""), checked_group("")) == ("", "")


def test_group_must_fit() -> None:
    assert checked_group("ü" * 127)
    with pytest.raises(InvalidMessage):
        checked_group("ü" * 128)


@given(st.sets(st.integers(0, 255)))
def test_runs_are_every_slot_once(slots: set[int]) -> None:
    spans = [Span(slot, slot, BEGINNING, 0) for slot in slots]
    found = list(runs(slots_of(spans)))
    assert [slot for lo, hi in found for slot in range(lo, hi + 1)] == sorted(slots)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))


@given(st.text("ab/", max_size=8), st.text("ab/", max_size=8))
def test_filters_of_a_uri_are_those_that_match_it(uri: str, wanted: str) -> None:
    assert (wanted in filters_of(uri)) == matches(uri, wanted)
