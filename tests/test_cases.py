"""A test of many cases names the one that fails, and has at least one."""

import pytest

from tests.cases import case, each


def test_case_is_told() -> None:
    with pytest.raises(ValueError, match="wrong") as raised, case("the third"):
        raise ValueError("wrong")
    assert raised.value.__notes__ == ["case: 'the third'"]


def test_each_case_is_tried_and_the_failing_one_is_told() -> None:
    tried: list[tuple[int, str]] = []

    @each(("number", "text"), [(1, "a"), (2, "b"), (3, "c")])
    @each("twice", [True, False])
    def check(number: int, text: str, *, twice: bool) -> None:
        tried.append((number, text))
        assert number < 2

    with pytest.raises(AssertionError) as raised:
        check()
    assert tried == [(1, "a"), (1, "a"), (2, "b")]
    assert raised.value.__notes__ == ["case: True", "case: (2, 'b')"]


def test_no_case_at_all_is_a_failure() -> None:
    @each("number", [])
    def check(number: int) -> None: ...

    with pytest.raises(AssertionError, match="no case"):
        check()
