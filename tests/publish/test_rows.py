"""From envelopes to a statement, from its rows to ids, and from both to hints. No database."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.envelope import Envelope, checked
from faststream_outbox._internal.publish.rows import MOST_BYTES, checked_batch, hints_of, ids_of, insertion, portions
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import InvalidMessageType
from tests.cases import each

LATER = timedelta(hours=1)


def message(**fields: Any) -> Envelope:
    return Envelope(**({"queue": "a", "body": b""} | fields))


@each(
    ("envelopes", "name"),
    [
        ([message()], "publish_one"),
        ([message(), message()], "publish_alike"),
        ([message(), message(key="k")], "publish_many"),
        ([message(), message(queue="b")], "publish_many"),
        ([message(), message(priority=1)], "publish_many"),
        ([message(), message(activate_in=timedelta(seconds=1))], "publish_many"),
        ([message(timer_id="t")], "publish_new_timers"),
        ([message(), message(timer_id="t")], "publish_new_timers"),
        ([message(timer_id="s"), message(timer_id="t", timer_conflict="extend")], "publish_timers"),
        ([message(timer_id="t", timer_conflict="replace")], "publish_timers"),
    ],
)
def test_simplest_statement_is_chosen(envelopes: list[Envelope], name: str) -> None:
    assert insertion(checked_batch(envelopes))[0] == name


def test_ids_of_plain_rows_are_in_order() -> None:
    assert ids_of(checked_batch([message(), message()]), [(7,), (8,)]) == [7, 8]


def test_ids_of_timers_are_found_by_their_names() -> None:
    rows = checked_batch([message(timer_id="t"), message(), message(timer_id="u"), message(timer_id="v"), message()])
    returned = [(1, "a", None), (2, "a", None), (3, "a", "v"), (4, "a", "t")]
    assert ids_of(rows, returned) == [4, 1, None, 3, 2]


def _hints(*envelopes: Envelope) -> list[Hint]:
    return hints_of(checked_batch(envelopes), list(range(len(envelopes))))


def test_hint_tells_of_all_messages_of_its_queue() -> None:
    hints = _hints(message(), message(priority=5, key="k"), message(queue="b", key="k"))
    assert hints == [
        Hint("a", count=2, priorities=frozenset((0, 5)), last_id=2),
        Hint("b", count=1, priorities=frozenset((0,)), keyless=False, last_id=2),
    ]


def test_message_that_was_not_written_is_not_told() -> None:
    rows = checked_batch([message(timer_id="t"), message(queue="b", timer_id="t")])
    assert [hint.queue for hint in hints_of(rows, [None, 1])] == ["b"]


@each(
    ("envelopes", "due_in", "later"),
    [
        ([message()], 0.0, False),
        ([message(activate_in=LATER)], 3600.0, False),
        ([message(activate_in=LATER), message(activate_in=LATER * 2)], 3600.0, True),
        ([message(), message(activate_in=LATER)], 0.0, True),
    ],
)
def test_hint_says_when_the_first_is_due_and_whether_others_are_later(
    envelopes: list[Envelope], due_in: float, later: bool
) -> None:
    (hint,) = _hints(*envelopes)
    assert (hint.due_in, hint.later) == (due_in, later)


@each(("ago", "scan"), [(timedelta(0), True), (-timedelta(seconds=1), True), (LATER, True), (-LATER, False)])
def test_time_that_may_have_passed_on_the_servers_clock_asks_for_a_look_below_the_floor(
    ago: timedelta, scan: bool
) -> None:
    (hint,) = _hints(message(activate_at=datetime.now(UTC) - ago))
    assert (hint.scan, hint.later) == (scan, True)


def test_due_time_by_the_calendar_is_told_in_seconds() -> None:
    (hint,) = _hints(message(activate_at=datetime.now(UTC) + LATER))
    assert 3590 < hint.due_in <= 3600


@pytest.mark.slow
@given(st.lists(st.sampled_from([0, 10, 3_000_000, 5_000_000, 7_999_999]), max_size=12), st.integers(1, 8))
def test_portions_are_all_rows_in_order_and_none_is_too_large(sizes: list[int], most: int) -> None:
    rows = [checked(message(body=bytes(size), key=str(place))) for place, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faststream_outbox._internal.publish.rows.MOST_ROWS", most)
        parts = list(portions(rows))
    assert [row for part in parts for row in part] == rows
    assert all(len(part) <= most for part in parts)
    assert all(sum(len(row.payload) for row in part) <= MOST_BYTES for part in parts)


HEADERS: list[dict[str, Any] | None] = [None, {}, {"a": "1"}, {"a": "1"}]
WAYS = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["a", "b"]),
        "body": st.sampled_from([b"", b"1", bytearray(b"2")]),
        "headers": st.sampled_from(HEADERS),
        "key": st.sampled_from([None, "k"]),
        "priority": st.sampled_from([0, 1]),
        "activate_in": st.sampled_from([None, LATER]),
        "message_id": st.sampled_from([None, UUID(int=1)]),
    },
)


@given(st.lists(WAYS.map(lambda fields: message(**fields)), max_size=8))
def test_batch_is_checked_as_each_message_alone(envelopes: list[Envelope]) -> None:
    assert checked_batch(envelopes) == [checked(envelope) for envelope in envelopes]


def test_bad_message_among_those_that_go_the_same_way_is_refused() -> None:
    with pytest.raises(InvalidMessageType, match="Header values"):
        checked_batch([message(headers={"a": "1"}), message(headers={"a": object()})])
