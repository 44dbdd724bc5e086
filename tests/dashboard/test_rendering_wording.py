"""Numbers, times and names as people read them."""

from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from faststream_outbox._internal.dashboard.rendering import (
    ago,
    anchor,
    counted,
    number,
    plural,
    rate,
    seconds,
    size,
    stamp,
    visible,
)
from tests.cases import each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@each(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (-1.0, "0 s"),
        (0.85, "850 ms"),
        (12.9, "12 s"),
        (60.0, "1 min"),
        (250.0, "4 min 10 s"),
        (3600.0, "1 h"),
        (11_100.0, "3 h 5 min"),
        (187_200.0, "2 d 4 h"),
    ],
)
def test_times_have_two_units(value: float, text: str) -> None:
    assert seconds(value) == text


@each(
    ("moment", "text"),
    [
        (None, "never"),
        (NOW, "now"),
        (NOW - timedelta(minutes=4), "4 min ago"),
        (NOW + timedelta(hours=2), "in 2 h"),
    ],
)
def test_moments_are_ago_or_to_come(moment: datetime | None, text: str) -> None:
    assert ago(moment, NOW) == text


def test_numbers() -> None:
    assert [number(12345), counted(100, True), counted(0, True), counted(1000, False)] == [
        "12,345",
        "100+",
        "0",
        "1,000",
    ]
    assert [rate(None), rate(0.0), rate(0.44), rate(12.4), rate(1250.0)] == ["–", "0", "0.4", "12", "1,250"]
    assert [size(12), size(4100), size(2_000_000), size(3_100_000_000)] == ["12 B", "4.1 kB", "2.0 MB", "3.1 GB"]
    assert [plural(1, "message"), plural(2000, "message"), plural(2, "process", "processes")] == [
        "1 message",
        "2,000 messages",
        "2 processes",
    ]
    assert stamp(NOW) == "2026-03-01 12:00:00 UTC"


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("a\u202eb\x00\u200b") == "a\\u202eb\\u0000\\u200b"
    assert visible("a\n\tb") == "a\n\tb"
    assert visible(None) == ""
    assert visible(Markup("<b>")) == Markup("<b>")
    assert visible(7) == 7


def test_anchors_are_the_same_for_the_same_and_only_then() -> None:
    assert anchor("q", "a b") == anchor("q", "a b")
    assert anchor("a", "b") != anchor("ab")
    assert anchor("<script>").isalnum()
