"""Windows over ticks: every position once and in the log's order, whatever the sizes; and the shared cache."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import MetaData

from faststream_outbox._internal.log.ordering import timeline as module
from faststream_outbox._internal.log.ordering.timeline import Tick, Timeline, holes, window
from faststream_outbox._internal.log.sharing.slots import BEGINNING, Cursor
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox.log import make_log_tables
from tests.cases import each
from tests.log.rig import LogRig

AT = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def logs(draw: st.DrawFn) -> list[Tick]:
    """Ticks of numbers in any assignment: late and low ranges, holes that were rolled back, missing ticks."""
    owners = draw(st.lists(st.integers(0, 5), max_size=40))
    first = draw(st.integers(1, 5))
    ticks = []
    for number in range(1, 6):
        positions = [first + place for place, owner in enumerate(owners) if owner == number]
        ranges: list[tuple[int, int]] = []
        for position in positions:
            if ranges and ranges[-1][1] == position - 1:
                ranges[-1] = (ranges[-1][0], position)
            else:
                ranges.append((position, position))
        if ranges:
            ticks.append(Tick.of(number, *zip(*ranges, strict=True), AT))
    return ticks


def places(ticks: list[Tick]) -> list[Cursor]:
    return [
        Cursor(tick.number, position)
        for tick in ticks
        for lo, hi in zip(tick.lows, tick.highs, strict=True)
        for position in range(lo, hi + 1)
    ]


def read(found: Any) -> list[Cursor]:
    runs = zip(found.ticks, found.los, found.his, strict=True)
    return [Cursor(tick, position) for tick, lo, hi in runs for position in range(lo, hi + 1)]


@given(logs(), st.lists(st.integers(1, 9), min_size=1))
def test_windows_are_every_position_once_and_in_order(ticks: list[Tick], sizes: list[int]) -> None:
    cursor, seen, turn = BEGINNING, [], 0
    while found := window(ticks, cursor, sizes[turn % len(sizes)]):
        got = read(found)
        assert len(got) <= sizes[turn % len(sizes)]
        assert found.end == got[-1]
        seen += got
        cursor, turn = found.end, turn + 1
    assert seen == places(ticks)


@given(logs(), st.data())
def test_window_ends_where_others_stand(ticks: list[Tick], data: st.DataObject) -> None:
    cursors = st.builds(Cursor, st.integers(0, 6), st.integers(0, 50))
    after, until = sorted([data.draw(cursors), data.draw(cursors)])
    found = window(ticks, after, data.draw(st.integers(1, 60)), until)
    expected = [place for place in places(ticks) if after < place <= until]
    got = [] if found is None else read(found)
    assert got == expected[: len(got)]
    assert bool(got) == bool(expected)


@given(logs(), st.builds(Cursor, st.integers(0, 6), st.integers(0, 50)), st.integers(1, 60))
def test_window_begins_behind_any_cursor(ticks: list[Tick], after: Cursor, size: int) -> None:
    found = window(ticks, after, size)
    expected = [place for place in places(ticks) if place > after][:size]
    assert (read(found) if found else []) == expected


class Ticks:
    """A connection that knows ticks, and counts how often it is asked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0
        self.openings = 1

    async def fetch(self, statement: Any, values: Any) -> list[Any]:
        self.asked += 1
        first = max(1, values["tick"])
        numbers = range(first, min(self.count, first + values["limit"] - 1) + 1)
        return [(number, [number * 10], [number * 10 + 4], 5, AT) for number in numbers]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    monkeypatch.setattr(module, "KEPT", 8)
    monkeypatch.setattr(module, "READ_AT_ONCE", 5)
    return Timeline(LogNames.of(make_log_tables(MetaData())))


async def walked(timeline: Timeline, connection: Any, cursor: Cursor, size: int = 3) -> list[Cursor]:
    seen = []
    while found := window(await timeline.after(connection, cursor), cursor, size):
        seen += read(found)
        cursor = found.end
    return seen


async def test_cache_hands_out_every_tick_though_it_keeps_few(kept: Timeline) -> None:
    connection = Ticks(60)
    assert len(await walked(kept, connection, BEGINNING)) == 300


async def test_readers_at_two_places_each_see_everything(kept: Timeline) -> None:
    connection = Ticks(60)
    at = {"slow": BEGINNING, "fast": BEGINNING}
    seen: dict[str, list[Cursor]] = {"slow": [], "fast": []}
    for turn in range(400):
        for who in ("fast", "fast" if turn % 7 == 0 else "slow"):
            if found := window(await kept.after(connection, at[who]), at[who], 4):  # type: ignore[arg-type]
                seen[who] += read(found)
                at[who] = found.end
    seen["slow"] += await walked(kept, connection, at["slow"])
    assert seen["fast"] == seen["slow"]
    assert len(seen["fast"]) == 300


async def test_reader_in_the_middle_of_a_tick_gets_the_rest_of_it_whatever_is_kept(kept: Timeline) -> None:
    """Another reader of the process was first, one tick further: what is kept begins behind our own tick."""
    connection = Ticks(9)
    await kept.after(connection, Cursor(4, 42))  # type: ignore[arg-type]
    assert (await walked(kept, connection, Cursor(3, 31)))[:4] == [
        Cursor(3, 32),
        Cursor(3, 33),
        Cursor(3, 34),
        Cursor(4, 40),
    ]


async def test_what_was_read_is_not_asked_for_again(kept: Timeline) -> None:
    connection = Ticks(5)
    await kept.after(connection, BEGINNING)  # type: ignore[arg-type]
    for position in (10, 12, 20, 30):
        await kept.after(connection, Cursor(position // 10, position))  # type: ignore[arg-type]
    assert connection.asked == 1


async def test_new_tick_is_read_when_it_was_heard_of(kept: Timeline) -> None:
    connection = Ticks(2)
    await kept.after(connection, BEGINNING)  # type: ignore[arg-type]
    end = Cursor(2, 24)
    assert not kept.may_follow(end)
    connection.count = 3
    kept.seen(3)
    assert kept.may_follow(end)
    assert [tick.number for tick in await kept.after(connection, end)][-1] == 3  # type: ignore[arg-type]
    assert not kept.may_follow(Cursor(3, 34))


async def test_ticks_are_read_anew_from_another_server(kept: Timeline) -> None:
    connection = Ticks(5)
    await kept.after(connection, BEGINNING)  # type: ignore[arg-type]
    connection.openings += 1
    await kept.after(connection, BEGINNING)  # type: ignore[arg-type]
    assert connection.asked == 2


async def test_place_within_the_last_tick_may_be_followed(kept: Timeline) -> None:
    await kept.after(Ticks(2), BEGINNING)  # type: ignore[arg-type]
    assert kept.may_follow(Cursor(2, 22))


async def test_ticks_that_retention_took_away_do_not_stop_a_reader(kept: Timeline) -> None:
    class Holes(Ticks):
        async def fetch(self, statement: Any, values: Any) -> list[Any]:
            return [row for row in await super().fetch(statement, values) if row[0] > 20]

    connection = Holes(30)
    connection.count = 30
    seen = await kept.after(connection, Cursor(21, 0))  # type: ignore[arg-type]
    assert seen[0].number == 21
    assert len(await walked(kept, connection, Cursor(20, 204))) == 50


class Fragments(Ticks):
    """Every other number was rolled back: a range for each message."""

    async def fetch(self, statement: Any, values: Any) -> list[Any]:
        rows, positions = [], 0
        for number, *_ in await super().fetch(statement, values):
            places = range(number * 100, number * 100 + 40, 2)
            if positions >= values["positions"]:
                break
            rows.append((number, list(places), list(places), len(places), AT))
            positions += len(places) if number > values["tick"] else 0
        return rows


async def test_ranges_that_are_kept_are_few_however_fragmented_the_log_is(
    kept: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_RANGES", 50)
    monkeypatch.setattr(module, "POSITIONS_AT_ONCE", 60)
    connection, cursor, seen = Fragments(30), BEGINNING, 0
    while found := window(await kept.after(connection, cursor), cursor, 7):  # type: ignore[arg-type]
        seen += len(read(found))
        cursor = found.end
        assert sum(len(tick.lows) for tick in kept._ticks) <= 2 * 50
    assert seen == 30 * 20


async def test_tick_with_more_positions_than_are_read_at_once_comes_nevertheless(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSITIONS_AT_ONCE", 1)
    for _ in range(3):
        await rig.put("k", *range(5))
        await rig.sequence()
    timeline = Timeline(rig.outbox.client.names)
    assert await walked(timeline, rig.outbox.client.connection, BEGINNING) == [
        Cursor(*place) for place in await rig.order()
    ]


async def test_tick_of_the_same_number_that_is_another_one_makes_all_that_was_read_worthless(kept: Timeline) -> None:
    """A pooler may lead to another server without our connection having ended."""
    connection = Ticks(3)
    await kept.after(connection, BEGINNING)  # type: ignore[arg-type]
    before = kept.generation

    class Others(Ticks):
        async def fetch(self, statement: Any, values: Any) -> list[Any]:
            return [(*row[:4], AT.replace(year=2027)) for row in await super().fetch(statement, values)]

    kept.seen(4)
    await kept.after(Others(4), Cursor(3, 34))  # type: ignore[arg-type]
    assert kept.generation == before + 1


@each(
    ("kept", "high", "expected"),
    [
        ([], 0, []),
        ([], 5, [(1, 5)]),
        ([(1, 5)], 5, []),
        ([(4, 5), (1, 2)], 5, [(3, 3)]),
        ([(3, 3)], 5, [(1, 2), (4, 5)]),
        ([(3, 9)], 5, [(1, 2)]),
        ([(8, 9)], 5, [(1, 5)]),
    ],
)
def test_holes_hold_no_message(kept: list[tuple[int, int]], high: int, expected: list[tuple[int, int]]) -> None:
    assert holes(kept, high) == expected


@given(st.sets(st.integers(1, 40)), st.integers(1, 40))
def test_every_number_is_kept_or_in_one_hole(kept: set[int], high: int) -> None:
    found = [number for lo, hi in holes([(number, number) for number in kept], high) for number in range(lo, hi + 1)]
    assert found == [number for number in range(1, high + 1) if number not in kept]
