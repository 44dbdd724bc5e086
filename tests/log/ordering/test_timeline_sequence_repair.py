"""What is left of the numbers when those are taken away that hold a message of a tick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.log.ordering.timeline import holes

numbers = st.integers(1, 40)


@pytest.mark.parametrize(
    ("kept", "high", "expected"),
    [
        ([], 0, []),
        ([], 5, [(1, 5)]),
        ([(1, 5)], 5, []),
        ([(4, 5), (1, 2)], 5, [(3, 3)]),
        ([(3, 3)], 5, [(1, 2), (4, 5)]),
        ([(3, 9)], 5, [(1, 2)]),
        ([(8, 9)], 5, [(1, 5)]),
    ],
)
def test_holes(kept: list[tuple[int, int]], high: int, expected: list[tuple[int, int]]) -> None:
    assert holes(kept, high) == expected


@given(st.sets(numbers), numbers)
def test_every_number_is_kept_or_in_one_hole(kept: set[int], high: int) -> None:
    found = [number for lo, hi in holes([(number, number) for number in kept], high) for number in range(lo, hi + 1)]
    assert found == [number for number in range(1, high + 1) if number not in kept]
