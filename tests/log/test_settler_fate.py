"""What became of a handler's transaction, by the rows that it wrote."""

from uuid import UUID

import pytest

from faststream_outbox._internal.connections.transactions import Fate
from faststream_outbox._internal.log.blocked import Deferral
from faststream_outbox._internal.log.settler import Written, fate_of
from faststream_outbox._internal.log.sharing.slots import Cursor, Span
from faststream_outbox._internal.sql.log_rows import LockedSpan, StillDeferred

ME, OTHER = UUID(int=1), UUID(int=2)
BEFORE, AFTER = Cursor(3, 30), Cursor(4, 44)
SPAN = Span(0, 255, BEFORE, epoch=7).at(AFTER, None)


def standing(
    cursor: Cursor = BEFORE, *, epoch: int = 7, owner: UUID | None = ME, is_free: bool = True
) -> list[LockedSpan]:
    return [LockedSpan(0, *cursor, epoch, owner, is_free)]


@pytest.mark.parametrize(
    ("rows", "fate"),
    [
        (standing(AFTER), Fate.COMMITTED),
        (standing(BEFORE), Fate.ROLLED_BACK),
        (standing(AFTER, is_free=False), Fate.OPEN),
        (standing(AFTER, epoch=8), Fate.UNKNOWN),
        (standing(BEFORE, owner=OTHER), Fate.UNKNOWN),
        (standing(Cursor(1, 1)), Fate.UNKNOWN),
        ([], Fate.UNKNOWN),
    ],
    ids=["moved", "where it was", "held", "taken", "another's", "elsewhere", "gone"],
)
def test_cursor_tells(rows: list[LockedSpan], fate: Fate) -> None:
    assert fate_of(Written([SPAN]), ME, rows, []) is fate


def test_one_span_that_is_still_ours_tells_of_all() -> None:
    low, high = Span(0, 9, BEFORE, 7).at(AFTER, None), Span(10, 255, BEFORE, 7).at(AFTER, None)
    rows = [LockedSpan(0, *BEFORE, 8, OTHER, True), LockedSpan(10, *AFTER, 7, ME, True)]
    assert fate_of(Written([low, high]), ME, rows, []) is Fate.COMMITTED


@pytest.mark.parametrize(
    ("left", "fate"),
    [([], Fate.COMMITTED), ([StillDeferred(5, "retry", 1)], Fate.ROLLED_BACK)],
    ids=["gone", "still there"],
)
def test_message_that_was_set_aside_tells(left: list[StillDeferred], fate: Fate) -> None:
    assert fate_of(Written([SPAN], done=(5,)), ME, standing(), left) is fate


@pytest.mark.parametrize(("attempts", "fate"), [(2, Fate.COMMITTED), (1, Fate.ROLLED_BACK)])
def test_failure_tells_by_its_count(attempts: int, fate: Fate) -> None:
    written = Written([SPAN], deferrals=(Deferral(5, 3, 0, "k", "retry", 2),))
    assert fate_of(written, ME, standing(), [StillDeferred(5, "retry", attempts)]) is fate


def test_nothing_is_known_of_messages_of_a_lost_span() -> None:
    assert fate_of(Written([SPAN], done=(5,)), ME, standing(owner=OTHER), []) is Fate.UNKNOWN
