"""Which messages cannot be read: told from those that can, by lone reads that failed."""

from datetime import UTC, datetime

import pytest

from faststream_outbox._internal.log.fetcher import KEEP_SECONDS, MOST, STRIKE_SECONDS, STRIKES, Unreadable
from faststream_outbox._internal.sql.log_rows import ReadMessage

ERROR = ValueError("unreadable")


def row(position: int = 7, *, metadata: str | None = None, uri: str = "k", transaction_id: int = 1) -> ReadMessage:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ReadMessage(1, position, uri, 0, None, None, metadata, None, at, transaction_id, 1, 0)


@pytest.fixture
def unreadable() -> Unreadable:
    """Knows that message 7 cannot be read, from the third second on."""
    found = Unreadable()
    for strike in range(STRIKES):
        found.failed(row(), ERROR, STRIKE_SECONDS * strike / (STRIKES - 1))
    return found


def test_is_known_after_some_failures(unreadable: Unreadable) -> None:
    assert unreadable.positions(STRIKE_SECONDS) == [7]


def test_is_not_known_before() -> None:
    unreadable = Unreadable()
    answers = [unreadable.failed(row(), ERROR, STRIKE_SECONDS) for _ in range(STRIKES - 1)]
    assert (answers, unreadable.positions(STRIKE_SECONDS)) == ([False] * (STRIKES - 1), [])


def test_is_not_known_while_the_server_may_only_have_stumbled() -> None:
    unreadable = Unreadable()
    assert not any(unreadable.failed(row(), ERROR, 0.01 * strike) for strike in range(10 * STRIKES))


def test_failures_before_it_could_be_read_do_not_count() -> None:
    unreadable = Unreadable()
    for strike in range(2 * STRIKES):
        assert not unreadable.failed(row(), ERROR, STRIKE_SECONDS * strike)
        unreadable.were_read([row(metadata="{}")])


def test_is_tried_again_after_a_while(unreadable: Unreadable) -> None:
    assert unreadable.positions(STRIKE_SECONDS + KEEP_SECONDS - 1) == [7]
    assert unreadable.positions(STRIKE_SECONDS + KEEP_SECONDS) == []
    assert not unreadable.failed(row(), ERROR, STRIKE_SECONDS + KEEP_SECONDS)


def test_another_message_under_its_position_is_to_be_read(unreadable: Unreadable) -> None:
    assert unreadable.were_read([row(6, metadata="{}"), row()])
    assert not unreadable.were_read([row(6, metadata="{}"), row(transaction_id=2)])
    assert unreadable.positions(STRIKE_SECONDS) == []


def test_no_more_are_kept_than_is_good(unreadable: Unreadable) -> None:
    for position in range(100, 100 + MOST):
        unreadable.failed(row(position), ERROR, STRIKE_SECONDS)
    assert unreadable.positions(STRIKE_SECONDS) == []


def test_says_why(unreadable: Unreadable) -> None:
    assert str(unreadable.error_of(7)).startswith(
        "not_readable: its content could not be read again and again: ValueError: unreadable. Once it can be, "
    )
    assert str(unreadable.error_of(8)).startswith("not_readable: its content could not be read again and again. Once")
