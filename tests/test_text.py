"""Numbers and times as people read them, in each place's own style, and what they type."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from faststream_outbox._internal.text import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    age,
    count,
    counted,
    duration,
    hexdump,
    moment,
    name,
    parsed_cursor,
    parsed_id,
    parsed_moment,
    parsed_number,
    parts,
    quote,
    size_of_1000,
    size_of_1024,
    spaced,
    spoken,
    stamp,
)
from tests.cases import each

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


NOTHING = [(0, SECOND)]
SAID: dict[str, tuple[Callable[[Any], object], list[tuple[Any, object]]]] = {
    "a time is divided from its largest unit on": (
        parts,
        [
            (0.9, NOTHING),
            (-5, NOTHING),
            (59, [(59, SECOND)]),
            (3600, [(1, HOUR), (0, MINUTE), (0, SECOND)]),
            (93_784, [(1, DAY), (2, HOUR), (3, MINUTE), (4, SECOND)]),
        ],
    ),
    "ages are short": (
        age,
        [(0, "0s"), (59.4, "59s"), (59.5, "1m"), (61, "1m 1s"), (3600, "1h"), (90_000, "1d 1h"), (-5, "0s")],
    ),
    "times have two units": (
        spaced,
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
    ),
    "a duration has one unit": (
        duration,
        [(0.5, "less than a second"), (1, "1 second"), (61, "1 minute"), (7200, "2 hours"), (200_000, "2 days")],
    ),
    "time is spoken": (
        spoken,
        [
            (timedelta(seconds=-5), "0.0 seconds"),
            (timedelta(seconds=1.26), "1.3 seconds"),
            (timedelta(seconds=119), "119.0 seconds"),
            (timedelta(minutes=2), "2 minutes"),
            (timedelta(hours=47), "47 hours"),
            (timedelta(days=48), "48 days"),
        ],
    ),
    "a noun goes with its number": (
        lambda number: counted(number, "row"),
        [(0, "0 rows"), (1, "1 row"), (1.0, "1 row"), (12_000, "12,000 rows")],
    ),
    "sizes of a thousand": (
        size_of_1000,
        [(12, "12 B"), (4100, "4.1 kB"), (2_000_000, "2.0 MB"), (3_100_000_000, "3.1 GB")],
    ),
    "sizes of 1024": (
        size_of_1024,
        [(10, "10 bytes"), (2048, "2.0 kB"), (3 * 2**30, "3.0 GB"), (2**60, "1048576.0 TB")],
    ),
    "a moment is in UTC": (moment, [(NOON, "2026-03-01 12:00:00Z"), (None, "-")]),
    "a stamp names UTC": (stamp, [(NOON, "2026-03-01 12:00:00 UTC"), (None, "")]),
    "a stranger's text is one line": (quote, [("a\nb\x1b", "a b\\x1b")]),
    "a number is one that a row can have": (
        parsed_number,
        [("7", 7), ("0", 0), (str(2**63 - 1), 2**63 - 1), *((no, None) for no in (str(2**63), "٣", "-1", ""))],
    ),
    "ids are numbers or UUIDs": (
        parsed_id,
        [
            ("12", 12),
            (str(UUID(int=7)), UUID(int=7)),
            *((no, None) for no in ("", None, "-1", "1" * 30, "x", "²")),
        ],
    ),
    "a place is two numbers": (
        parsed_cursor,
        [("3:14", (3, 14)), *((no, None) for no in ("3", "3:", "-3:1", f"{10**18}:1", "٣:1"))],
    ),
    "a time without a zone is of UTC": (
        parsed_moment,
        [
            ("2026-03-01T12:00", NOON),
            ("2026-03-01T13:00+01:00", NOON),
            ("2026-03-01", NOON.replace(hour=0)),
            ("2h", None),
            ("", None),
        ],
    ),
}


@each(
    ("what", "tell", "given", "said"),
    [(what, tell, given, said) for what, (tell, cases) in SAID.items() for given, said in cases],
)
def test_it_is_told_or_read_so(what: str, tell: Callable[[Any], object], given: Any, said: object) -> None:
    assert tell(given) == said, what


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert [counted(2000, "message"), counted(2, "process", "processes")] == ["2,000 messages", "2 processes"]


def test_an_estimate_may_be_more() -> None:
    assert [count(10_000), count(10_000, is_estimate=True)] == ["10,000", "10,000+"]


def test_a_strangers_text_is_cut_and_a_name_is_quoted() -> None:
    assert len(quote("x" * 1000)) == 200
    assert name("orders\n") == "'orders'"


def test_bytes_stand_sixteen_on_a_line() -> None:
    first = f"00000000  {' '.join(['41'] * 16)}  AAAAAAAAAAAAAAAA"
    assert hexdump(b"A" * 17).splitlines() == [first, f"00000010  {'41':<47}  A"]
