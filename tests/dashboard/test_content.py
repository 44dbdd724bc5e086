"""What a message says, as it is shown and edited: every digit, and nothing that a redactor takes out."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from faststream_outbox._internal.dashboard.content import (
    LARGEST,
    LONGEST,
    Content,
    decoded,
    draft,
    hide_fields,
    new_body,
    new_headers,
    pretty,
    shown,
    version_of,
)
from faststream_outbox._internal.queue.dead_letters import DeadLetter
from faststream_outbox.errors import InvalidOption
from tests.cases import case, each

NOW = datetime(2026, 3, 1, tzinfo=UTC)


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


def failing(given: Content) -> Content:
    raise KeyError(given.body["nothing"])


@each(("redact", "may_read"), [(lambda _: None, True), (failing, True), (None, False)])
def test_everything_is_hidden_where_nothing_may_be_said(redact: Any, may_read: bool) -> None:
    seen = shown(content({"a": "4242"}, secret="x"), redact, may_read=may_read)
    assert (seen.is_hidden, seen.body, seen.headers, seen.error, seen.traceback) == (True, "", (), None, None)


def test_redactor_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    shown(content({"a": "4242"}), failing)
    assert "The redactor failed" in caplog.text


def letter(payload: bytes = b'{"a": 1}', **headers: object) -> DeadLetter:
    usual: dict[str, Any] = dict.fromkeys(
        ("key", "timer_id", "last_exception", "error_type", "error_message", "traceback")
    )
    usual |= dict.fromkeys(("first_attempt_at", "last_attempt_at")) | dict.fromkeys(("created_at", "failed_at"), NOW)
    usual |= {"priority": 0, "attempts_count": 1, "deliveries_count": 1, "failure_reason": "rejected"}
    return DeadLetter(7, 70, UUID(int=7), "orders", payload, headers, **usual)


def test_json_is_indented_for_the_eyes_only() -> None:
    given = letter(b'{"a":1.10,"a":2,"b":"\\u00e9"}')
    form = draft(given, None)
    assert form.body == '{\n  "a": 1.10,\n  "a": 2,\n  "b": "\\u00e9"\n}'
    assert new_body(form.body, given) is None
    assert new_body(form.body.replace("2", "3"), given) == b'{"a":1.10,"a":3,"b":"\\u00e9"}'


def test_what_a_browser_does_to_line_ends_is_undone() -> None:
    given = letter(b"first\nsecond")
    assert new_body("first\r\nsecond", given) is None
    assert new_body("first\r\nthird", given) == b"first\nthird"


def test_json_stays_json() -> None:
    with pytest.raises(InvalidOption, match="is none any more"):
        new_body('{"a": }', letter())


def test_what_a_form_would_spoil_is_left_to_the_command_line() -> None:
    for payload, why in (
        (b"\xff\x00", "no text"),
        (b"a\rb", "characters that a form would change"),
        (b"x" * (LARGEST + 1), "too long"),
        ("é".encode() * (LARGEST // 5), "too long"),
    ):
        with case(payload[:3]):
            form = draft(letter(payload), None)
            assert form.body is None
            assert why in (form.why_no_body or "")


def test_what_the_redactor_hides_cannot_be_overwritten_by_its_masks() -> None:
    given = letter(b'{"card": "4242"}', source="shop")
    hidden = draft(given, hide_fields("card"))
    assert (hidden.body, hidden.headers) == (None, '{\n  "source": "shop"\n}')
    of_headers = draft(given, hide_fields("source"))
    assert of_headers.body is not None
    assert of_headers.headers is None
    assert (draft(given, failing).body, draft(given, failing).headers) == (None, None)
    assert draft(given, lambda _: None).body is None
    assert draft(given, hide_fields("other")).body is not None


def test_headers_are_an_object() -> None:
    given = letter(source="shop")
    assert new_headers('{"source": "shop"}', given) is None
    assert new_headers('{"source": "web"}', given) == {"source": "web"}
    for wrong in ("[]", "", "{", "1", "null"):
        with case(wrong), pytest.raises(InvalidOption, match="no JSON object"):
            new_headers(wrong, given)


def test_version_is_another_one_after_each_change() -> None:
    versions = {version_of(letter()), version_of(letter(b"2")), version_of(letter(x=1)), version_of(letter(b"2", x=1))}
    assert len(versions) == 4
    assert version_of(letter(x=1, y=2)) == version_of(letter(y=2, x=1))
