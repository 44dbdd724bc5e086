"""Shapes that belong together have the same columns, so that one row can be made of another by their names."""

from dataclasses import fields

from faststream_outbox._internal.memory.tables import MemoryRow
from faststream_outbox._internal.sql.queue_rows import ClaimedOfKeyRow, ClaimedRow, DeadLetterRow, UnprocessedRow
from faststream_outbox.overview import Unprocessed
from faststream_outbox.queue import DeadLetter


def names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def test_what_is_claimed_of_a_key_begins_as_any_claim() -> None:
    assert ClaimedOfKeyRow._fields[: len(ClaimedRow._fields)] == ClaimedRow._fields


def test_what_is_shown_has_the_columns_of_its_row() -> None:
    assert names(Unprocessed) == UnprocessedRow._fields
    assert names(DeadLetter) == DeadLetterRow._fields


def test_a_row_in_memory_has_the_columns_that_are_shown() -> None:
    assert set(names(MemoryRow)) == set(UnprocessedRow._fields)
