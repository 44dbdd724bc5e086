"""Numbers, times and names as people read them."""

from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from faststream_outbox._internal.dashboard.rendering import ago, anchor, number, rate, visible
from tests.cases import each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


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
    assert [number(12345), number(100, True), number(0, True), number(1000, False)] == [
        "12,345",
        "100+",
        "0",
        "1,000",
    ]
    assert [rate(None), rate(0.0), rate(0.44), rate(12.4), rate(1250.0)] == ["–", "0", "0.4", "12", "1,250"]


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
