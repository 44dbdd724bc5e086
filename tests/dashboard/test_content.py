"""What a message says, as it is shown: every digit, nothing that a redactor takes out."""

from decimal import Decimal
from typing import Any

import pytest

from faststream_outbox._internal.dashboard.content import LONGEST, Content, decoded, hide_fields, pretty, shown
from tests.cases import each


def content(body: Any, **headers: Any) -> Content:
    return Content("orders", "a", body, headers, "declined", "Traceback: card 4242")


@each(
    ("payload", "body"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": 1.10}', {"a": Decimal("1.10")}),
        (b"plain", "plain"),
        (b"\xff\x00", b"\xff\x00"),
        (b"[" * 100_000, "[" * 100_000),
        ({"a": 1}, {"a": 1}),
        (None, None),
    ],
)
def test_bodies_are_decoded_as_far_as_they_can_be(payload: object, body: object) -> None:
    assert decoded(payload) == body


def test_numbers_keep_every_digit() -> None:
    text = pretty(decoded(b'{"big": 123456789012345678901234567890, "price": 1.10, "small": 1e-400, "none": null}'))
    assert '"big": 123456789012345678901234567890' in text
    assert '"price": 1.10' in text
    assert '"small": 1E-400' in text
    assert '"none": null' in text


@each(
    ("value", "text"),
    [({}, "{}"), ([], "[]"), ({"a": []}, '{\n  "a": []\n}'), ("ä", '"ä"'), ([1, 2], "[\n  1,\n  2\n]"), (True, "true")],
)
def test_json_is_indented(value: Any, text: str) -> None:
    assert pretty(value) == text


def test_bytes_are_dumped() -> None:
    seen = shown(content(b"\xff\x00AB"), None)
    assert (seen.kind, seen.body) == ("bytes", "00000000  ff 00 41 42                                      ..AB")


def test_long_bodies_are_cut() -> None:
    seen = shown(content("x" * (LONGEST + 1)), None)
    assert seen.is_cut
    assert len(seen.body) == LONGEST


def test_named_fields_are_masked_at_any_depth() -> None:
    body = {"card_number": "4242", "lines": [{"Password": "x", "sku": "CHAIR"}], "n": Decimal("1.5")}
    seen = shown(
        content(body, authorization="Bearer x", source="shop"), hide_fields("card_*", "password", "authorization")
    )
    assert "4242" not in seen.body
    assert '"Password": "•••"' in seen.body
    assert '"sku": "CHAIR"' in seen.body
    assert dict(seen.headers) == {"authorization": "•••", "source": "shop"}
    assert seen.traceback is None


@each("body", ["card_number=4242", b"\x004242"])
def test_body_without_fields_is_hidden_by_who_hides_fields(body: object) -> None:
    seen = shown(content(body), hide_fields("card_*"))
    assert (seen.is_hidden, seen.body, seen.traceback) == (True, "", None)


def test_redactor_that_says_nothing_hides_everything() -> None:
    seen = shown(content({"a": 1}, secret="x"), lambda _: None)
    assert (seen.is_hidden, seen.body, seen.headers, seen.error, seen.traceback) == (True, "", (), None, None)


def test_redactor_that_fails_hides_everything(caplog: pytest.LogCaptureFixture) -> None:
    def redact(given: Content) -> Content:
        raise KeyError(given.body["nothing"])

    seen = shown(content({"a": "4242"}), redact)
    assert (seen.is_hidden, seen.body, seen.error) == (True, "", None)
    assert "The redactor failed" in caplog.text


def test_whoever_may_not_read_bodies_sees_none() -> None:
    seen = shown(content({"a": 1}, secret="x"), None, may_read=False)
    assert (seen.is_hidden, seen.body, seen.headers, seen.error, seen.traceback) == (True, "", (), None, None)
