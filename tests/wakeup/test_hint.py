"""Hints: how they are merged, written into NOTIFY payloads and read again, also those of strangers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.wakeup.hint import MAX_PAYLOAD_BYTES, Hint, merged, parsed, payloads
from tests.cases import each

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=255)
PRIORITIES = st.frozensets(st.integers(-32768, 32767), max_size=6)
HINTS = st.builds(
    Hint,
    queue=st.none() | NAMES,
    count=st.integers(0, 10**9),
    priorities=PRIORITIES,
    keyed=st.booleans(),
    keyless=st.booleans(),
    # payloads carry milliseconds
    due_in=st.integers(0, 10**12).map(lambda milliseconds: milliseconds / 1000),
    later=st.booleans(),
    scan=st.booleans(),
    last_id=st.integers(0, 2**63 - 1),
)


def again(hints: list[Hint]) -> list[Hint]:
    """The hints after a journey."""
    read = [parsed(payload) for payload in payloads(hints, sender="me")]
    assert all(sender == "me" for sender, _ in read)
    return [hint for _, some in read for hint in some]


@pytest.mark.slow
@given(st.lists(HINTS, max_size=8))
def test_hints_come_back_as_they_were_sent(hints: list[Hint]) -> None:
    assert again(hints) == hints


@pytest.mark.slow
@given(st.lists(HINTS, min_size=1, max_size=60))
def test_each_payload_fits_a_notification(hints: list[Hint]) -> None:
    assert all(len(payload.encode()) < MAX_PAYLOAD_BYTES for payload in payloads(hints, sender="f" * 32))


@each(("number", "needed"), [(0, 0), (100, 1)])
def test_hints_need_few_payloads(number: int, needed: int) -> None:
    hints = [Hint(f"queue-{number}", count=1, priorities=frozenset((0,))) for number in range(number)]
    assert len(list(payloads(hints, sender="f" * 32))) == needed


def test_hint_with_very_many_priorities_fits_and_says_none_falsely() -> None:
    every = frozenset(range(-32768, 32768))
    (payload,) = payloads([Hint("q" * 255, count=65536, priorities=every)], sender="f" * 32)
    assert len(payload.encode()) < MAX_PAYLOAD_BYTES
    _, (hint,) = parsed(payload)
    # no priorities means that they are unknown
    assert hint.priorities in (every, frozenset())
    assert hint.count == 65536


@pytest.mark.slow
@given(HINTS, HINTS, HINTS)
def test_merging_does_not_depend_on_the_order(one: Hint, other: Hint, third: Hint) -> None:
    two, three = replace(other, queue=one.queue), replace(third, queue=one.queue)
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))


@each(
    ("one", "other", "both"),
    [
        (Hint("q", count=2), Hint("q", count=3), Hint("q", count=5)),
        (
            Hint("q", priorities=frozenset((1,))),
            Hint("q", priorities=frozenset((2,))),
            Hint("q", priorities=frozenset((1, 2))),
        ),
        # what one does not know, both together do not know
        (Hint("q", priorities=frozenset((1,))), Hint("q"), Hint("q")),
        (Hint("q", keyed=False), Hint("q", keyless=False), Hint("q")),
        (Hint("q", keyed=False), Hint("q", keyed=False), Hint("q", keyed=False)),
        (Hint("q", due_in=5.0), Hint("q", due_in=2.0), Hint("q", due_in=2.0, later=True)),
        (Hint("q", due_in=5.0), Hint("q", due_in=5.0), Hint("q", due_in=5.0)),
        (Hint("q", later=True), Hint("q"), Hint("q", later=True)),
        (Hint("q", scan=True), Hint("q"), Hint("q", scan=True)),
        (Hint("q", last_id=3), Hint("q", last_id=2), Hint("q", last_id=3)),
    ],
)
def test_merged_hint_says_what_both_say(one: Hint, other: Hint, both: Hint) -> None:
    assert merged(one, other) == both


def test_empty_payload_means_every_queue() -> None:
    assert parsed("") == ("", [Hint(None)])


NAMES_ALONE = [
    "orders",
    "заказы",
    "a b",
    "[1]",
    "null",
    '"orders"',
    "outbox:orders",
    "{",
    "{}",
    "{not json}",
    '{"op": "INSERT", "table": "outbox"}',
    '{"from": "x"}',
    '{"from": "x", "hints": null}',
    '{"from": "x", "hints": [1]}',
    '{"from": "x", "hints": [["q"]]}',
    '{"from": "x", "hints": [["q", "many", [], 3, 0, 0]]}',
    '{"from": "x", "hints": [["q", 1, 5, 3, 0, 0]]}',
    '{"from": "x", "hints": [["q", 1, [], "3", 0, 0]]}',
    '{"from": "x", "hints": [["q", 1, [], 3, "soon", 0]]}',
    '{"from": "x", "hints": [["q", Infinity, [], 3, 0, 0]]}',
    '{"from": "x", "hints": [["q", 1, [1e999], 3, 0, 0]]}',
    '{"from": "x", "hints": ' + "[" * 7000 + "]" * 7000 + "}",
    '{"from": "x", "hints": [["q", ' + "9" * 7000 + ", [], 3, 0, 0]]}",
]


@each("payload", NAMES_ALONE)
def test_bare_name_and_payload_of_a_stranger_mean_that_queue(payload: str) -> None:
    assert parsed(payload) == ("", [Hint(payload)])
