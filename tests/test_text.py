"""Numbers and times as people read them, in each place's own style, and what they type."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from faststream_outbox._internal.text import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Unit,
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


@each(
    ("seconds", "units"),
    [
        (0.9, [(0, SECOND)]),
        (-5, [(0, SECOND)]),
        (59, [(59, SECOND)]),
        (3600, [(1, HOUR), (0, MINUTE), (0, SECOND)]),
        (93_784, [(1, DAY), (2, HOUR), (3, MINUTE), (4, SECOND)]),
    ],
)
def test_a_time_is_divided_from_its_largest_unit_on(seconds: float, units: list[tuple[int, Unit]]) -> None:
    assert parts(seconds) == units


@each(
    ("seconds", "said"),
    [(0, "0s"), (59.4, "59s"), (59.5, "1m"), (61, "1m 1s"), (3600, "1h"), (90_000, "1d 1h"), (-5, "0s")],
)
def test_ages_are_short(seconds: float, said: str) -> None:
    assert age(seconds) == said


@each(
    ("value", "said"),
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
def test_times_have_two_units(value: float, said: str) -> None:
    assert spaced(value) == said


@each(
    ("seconds", "said"),
    [(0.5, "less than a second"), (1, "1 second"), (61, "1 minute"), (7200, "2 hours"), (200_000, "2 days")],
)
def test_a_duration_has_one_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@each(
    ("time", "said"),
    [
        (timedelta(seconds=-5), "0.0 seconds"),
        (timedelta(seconds=1.26), "1.3 seconds"),
        (timedelta(seconds=119), "119.0 seconds"),
        (timedelta(minutes=2), "2 minutes"),
        (timedelta(hours=47), "47 hours"),
        (timedelta(days=48), "48 days"),
    ],
)
def test_time_is_spoken(time: timedelta, said: str) -> None:
    assert spoken(time) == said


@each(("number", "said"), [(0, "0 rows"), (1, "1 row"), (1.0, "1 row"), (12_000, "12,000 rows")])
def test_a_noun_goes_with_its_number(number: float, said: str) -> None:
    assert counted(number, "row") == said


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert [counted(2000, "message"), counted(2, "process", "processes")] == ["2,000 messages", "2 processes"]


def test_an_estimate_may_be_more() -> None:
    assert [count(10_000), count(10_000, is_estimate=True)] == ["10,000", "10,000+"]


@each(("number", "said"), [(12, "12 B"), (4100, "4.1 kB"), (2_000_000, "2.0 MB"), (3_100_000_000, "3.1 GB")])
def test_sizes_of_a_thousand(number: int, said: str) -> None:
    assert size_of_1000(number) == said


@each(("number", "said"), [(10, "10 bytes"), (2048, "2.0 kB"), (3 * 2**30, "3.0 GB"), (2**60, "1048576.0 TB")])
def test_sizes_of_1024(number: int, said: str) -> None:
    assert size_of_1024(number) == said


def test_a_moment_is_in_utc() -> None:
    assert [moment(NOON), moment(None)] == ["2026-03-01 12:00:00Z", "-"]
    assert [stamp(NOON), stamp(None)] == ["2026-03-01 12:00:00 UTC", ""]


def test_a_strangers_text_is_one_line_and_cut() -> None:
    assert quote("a\nb\x1b") == "a b\\x1b"
    assert len(quote("x" * 1000)) == 200
    assert name("orders\n") == "'orders'"


def test_bytes_stand_sixteen_on_a_line() -> None:
    first = f"00000000  {' '.join(['41'] * 16)}  AAAAAAAAAAAAAAAA"
    assert hexdump(b"A" * 17).splitlines() == [first, f"00000010  {'41':<47}  A"]


@each(
    ("typed", "number"),
    [("7", 7), ("0", 0), (str(2**63 - 1), 2**63 - 1), (str(2**63), None), ("٣", None), ("-1", None), ("", None)],
)
def test_a_number_is_one_that_a_row_can_have(typed: str, number: int | None) -> None:
    assert parsed_number(typed) == number


@each(
    ("text", "found"),
    [
        ("12", 12),
        (str(UUID(int=7)), UUID(int=7)),
        ("", None),
        (None, None),
        ("-1", None),
        ("1" * 30, None),
        ("x", None),
        ("²", None),
    ],
)
def test_ids_are_numbers_or_uuids(text: str | None, found: object) -> None:
    assert parsed_id(text) == found


@each(
    ("typed", "place"),
    [("3:14", (3, 14)), ("3", None), ("3:", None), ("-3:1", None), (f"{10**18}:1", None), ("٣:1", None)],
)
def test_a_place_is_two_numbers(typed: str, place: tuple[int, int] | None) -> None:
    assert parsed_cursor(typed) == place


@each(
    ("typed", "at"),
    [
        ("2026-03-01T12:00", NOON),
        ("2026-03-01T13:00+01:00", NOON),
        ("2026-03-01", NOON.replace(hour=0)),
        ("2h", None),
        ("", None),
    ],
)
def test_a_time_without_a_zone_is_of_utc(typed: str, at: datetime | None) -> None:
    assert parsed_moment(typed) == at
