"""Whatever a handler raises becomes text that PostgreSQL stores."""

from typing import Any, NoReturn

from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.outcomes.failure import (
    MAX_EXCEPTION,
    MAX_MESSAGE,
    MAX_TRACEBACK,
    NO_FAILURE,
    Failure,
    described,
    storable,
)
from tests.cases import each


class RaisingRepr(Exception):
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr")


class RaisingStr(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no str")


class ReprOfAnotherType(Exception):
    def __repr__(self) -> Any:
        return 7


def raised(error: Exception) -> Exception:
    """The error with a traceback, as a handler raises it."""
    try:
        raise error
    except Exception as caught:
        return caught


def texts(failure: Failure) -> list[str]:
    parts = [failure.exception, failure.error_type, failure.error_message, failure.traceback]
    return [part for part in parts if part is not None]


class TestStorable:
    @given(st.text(st.characters(), max_size=200), st.integers(1, 100))
    def test_is_utf8_without_nul_and_not_too_long(self, text: str, length: int) -> None:
        stored = storable(text, length)
        stored.encode()
        assert "\x00" not in stored
        assert len(stored) <= length

    def test_leaves_ordinary_text_alone(self) -> None:
        assert storable("größer als 3 €", 100) == "größer als 3 €"

    def test_shows_what_was_cut(self) -> None:
        assert storable("abcdef", 4) == "abc…"


class TestDescribed:
    def test_no_error_is_no_failure(self) -> None:
        assert described(None) == NO_FAILURE

    def test_an_error_has_type_message_and_traceback(self) -> None:
        failure = described(raised(ValueError("no such order")))
        assert texts(failure)[:3] == ["ValueError('no such order')", "ValueError", "no such order"]
        assert (failure.traceback or "").startswith("Traceback")
        assert "in raised" in (failure.traceback or "")

    def test_a_type_of_the_applications_is_named_with_its_module(self) -> None:
        assert described(RaisingStr()).error_type == f"{__name__}.RaisingStr"

    def test_the_cause_is_in_the_traceback(self) -> None:
        error = ValueError("outer")
        error.__cause__ = KeyError("inner")
        assert "KeyError: 'inner'" in (described(raised(error)).traceback or "")

    @each(
        "error",
        [
            RaisingRepr("x"),
            RaisingStr("x"),
            ReprOfAnotherType("x"),
            ValueError("nul \x00 inside"),
            ValueError("surrogate \udc80 inside"),
            ValueError("x" * 5_000_000),
            ExceptionGroup("many", [ValueError(str(number)) for number in range(1000)]),
        ],
    )
    def test_every_error_becomes_storable_text(self, error: Exception) -> None:
        failure = described(raised(error))
        for text in texts(failure):
            text.encode()
            assert "\x00" not in text
        assert len(failure.exception or "") <= MAX_EXCEPTION
        assert len(failure.error_message or "") <= MAX_MESSAGE
        assert len(failure.traceback or "") <= MAX_TRACEBACK
        assert failure.error_type

    def test_a_raising_repr_or_str_is_named(self) -> None:
        assert described(RaisingRepr()).exception == f"{__name__}.RaisingRepr (RuntimeError while rendering it)"
        assert described(RaisingStr()).error_message == f"{__name__}.RaisingStr (RuntimeError while rendering it)"


class TestRenderer:
    @each("answer", ["redacted", None])
    def test_replaces_the_exception_or_keeps_none(self, answer: str | None) -> None:
        assert described(ValueError("secret"), lambda error: answer).exception == answer

    def test_that_raises_is_named(self) -> None:
        def render(error: BaseException) -> NoReturn:
            raise KeyError("renderer")

        assert described(ValueError("x"), render).exception == "ValueError (KeyError while rendering it)"

    @each(("answer", "expected"), [(7, "7"), (b"raw", "b'raw'"), (RaisingStr(), "ValueError (RuntimeError while")])
    def test_may_answer_with_any_object(self, answer: object, expected: str) -> None:
        assert (described(ValueError("x"), lambda error: answer).exception or "").startswith(expected)
