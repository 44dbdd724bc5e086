"""A dead letter as text and back: nothing changes but what was typed."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from faststream_outbox._internal.dashboard.content import LARGEST, Content, draft, new_body, new_headers, version_of
from faststream_outbox._internal.queue.dead_letters import DeadLetter
from faststream_outbox.dashboard import hide_fields
from faststream_outbox.errors import InvalidOption
from tests.cases import case

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def letter(payload: bytes = b'{"a": 1}', **headers: object) -> DeadLetter:
    return DeadLetter(
        id=7,
        original_id=70,
        message_id=UUID(int=7),
        queue="orders",
        payload=payload,
        headers=headers,
        key=None,
        priority=0,
        timer_id=None,
        attempts_count=1,
        deliveries_count=1,
        created_at=NOW,
        first_attempt_at=None,
        last_attempt_at=None,
        failed_at=NOW,
        failure_reason="rejected",
        last_exception=None,
        error_type=None,
        error_message=None,
        traceback=None,
    )


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

    def fails(content: Content) -> Content:
        raise ValueError

    assert (draft(given, fails).body, draft(given, fails).headers) == (None, None)
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
