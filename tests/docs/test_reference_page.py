"""The reference has every public name, and what the code says of it."""

from docs import reference


def test_every_public_name_says_what_it_is() -> None:
    assert reference.mute() == []


def test_the_page_is_what_the_code_says() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.written(), "run: python -m docs.reference"


def test_a_name_that_says_nothing_is_found() -> None:
    assert reference.line_of(reference, "PACKAGE") is None
    assert (
        reference.line_of(reference, "OLD")
        == "Paths that were on pages once: they go on working, and nothing new says them."
    )
    assert reference.line_of(reference, "written") == "The page."
