"""Values as text: what a stranger wrote never reaches the terminal as it is, and bodies can be read."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.cli.exits import Block, Body, Facts, Grid, Marked, Quoted, Said
from faststream_outbox._internal.cli.options import parse_length, parse_moment
from faststream_outbox._internal.cli.printing import plain
from faststream_outbox._internal.text import LONGEST_BODY, body, compact, glance, is_json, reindented
from tests.cases import case

UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
HOSTILE = "\x1b[31mred\x1b[0m\r\n\x9b2J \u202eevil \x00 [bold]markup[/bold] \ud800"


def test_no_block_lets_a_control_character_through() -> None:
    blocks: list[Block] = [
        Grid(("name",), [(HOSTILE,), (Marked(HOSTILE, "bad"),)], HOSTILE),
        Grid(("name",), [], empty=HOSTILE),
        Facts([("name", HOSTILE)], HOSTILE),
        Said(HOSTILE),
        Quoted(HOSTILE, HOSTILE),
        Body(HOSTILE.encode(errors="surrogatepass"), HOSTILE),
        Body(json.dumps([HOSTILE], ensure_ascii=False).encode(errors="replace")),
    ]
    for block in blocks:
        with case(block):
            assert UNSEEN.search(plain(block)) is None


def test_a_name_is_one_line_and_others_lines_are_set_in() -> None:
    assert plain(Grid(("name",), [("a\nError: forged",)])).splitlines() == ["name", "a\\nError: forged"]
    assert plain(Quoted("a\nError: forged", "traceback")).splitlines() == ["traceback", "  a", "  Error: forged"]


@given(st.binary(max_size=200))
def test_any_body_can_be_shown(payload: bytes) -> None:
    for text in (body(payload), glance(payload)):
        assert UNSEEN.search(text) is None
    assert "\n" not in glance(payload)
    assert len(glance(payload)) <= 80


def test_bodies_are_shown_by_what_they_are() -> None:
    for payload, expected in (
        (b'{"a":[1,{}],"b":"x"}', '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "x"\n}'),
        (b"plain\r\ntext", "plain\ntext"),
        (b"", ""),
        (b"\xff\x00A", f"00000000  {'ff 00 41':<47}  ..A"),
        (b'{"broken":', '{"broken":'),
        (
            b"[" * 100_000,
            "[" * LONGEST_BODY + f"\n… {100_000 - LONGEST_BODY:,} more characters: --full shows them",
        ),
        (b"\xff" * 2000, None),
    ):
        with case(payload[:20]):
            assert expected is None or body(payload) == expected
    assert body(b"\xff" * 2000).endswith("… 976 more bytes: --full shows them")
    assert len(body(b"\xff" * 2000, is_full=True).splitlines()) == 125
    assert body(b"x" * 30_000, is_full=True) == "x" * 30_000
    assert glance("é".encode() * 300) == "é" * 59 + "…"
    assert glance(b"\xff" * 20) == "20 bytes: " + " ".join(["ff"] * 16) + "…"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
)


@given(st.lists(JSON, max_size=3) | st.dictionaries(st.text(), JSON, max_size=3), st.booleans())
def test_json_keeps_its_meaning_whatever_its_white_space(value: object, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    indented = reindented(text)
    assert indented is not None
    assert json.loads(indented) == json.loads(text)
    assert compact(indented) == json.dumps(value, ensure_ascii=ascii, separators=(",", ":"))


def test_json_keeps_what_a_parser_would_lose() -> None:
    text = '{"a": 1.10, "a": 1e400, "b": "\\u00e9 , :"}'
    assert compact(reindented(text) or "") == '{"a":1.10,"a":1e400,"b":"\\u00e9 , :"}'
    assert [is_json(each) for each in ("1", '"text"', "[1]", "{", "[" * 10_000)] == [False, False, True, False, False]


def test_times_are_read_as_people_write_them() -> None:
    now = datetime.now(UTC)
    assert parse_length("1h30m") == timedelta(minutes=90)
    assert parse_length("2.5") == timedelta(seconds=2.5)
    assert parse_moment("2026-11-17T10:00") == datetime(2026, 11, 17, 10, tzinfo=UTC)
    assert parse_moment("2026-11-17T10:00+02:00") == datetime(2026, 11, 17, 8, tzinfo=UTC)
    assert now - timedelta(hours=2) <= parse_moment("2h") <= datetime.now(UTC) - timedelta(hours=2)


@given(st.text(max_size=20))
def test_any_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    for parse in (parse_length, parse_moment):
        with suppress(typer.BadParameter):
            assert parse(text) is not None


def test_lengths_that_no_calendar_has_are_refused() -> None:
    for parse in (parse_length, parse_moment):
        with pytest.raises(typer.BadParameter):
            parse("99999999999999999999w")
    with pytest.raises(typer.BadParameter):
        parse_moment("900000d")
