"""Dead letters for operators: finding, grouping, counting, editing and purging."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faststream_outbox._internal.queue.dead_letters import Replay
from faststream_outbox.errors import InvalidOption
from faststream_outbox.queue import Selection
from tests.cases import case
from tests.queue.rig import Rig

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)

BURY = """
insert into {d} (original_id, message_id, queue, payload, headers, key, priority, timer_id, attempts_count,
                 deliveries_count, created_at, failed_at, failure_reason, error_type, error_message)
select i, gen_random_uuid(), case when i % 2 = 0 then 'orders' else 'mails' end, convert_to(i::text, 'UTF8'),
       '{"a": 1}', 'k' || i % 3, i % 4, null, 3, 4, :epoch, :epoch + make_interval(hours => i),
       case when i % 5 = 0 then 'rejected' else 'retry_terminal' end,
       case when i % 5 = 0 then null else 'ValueError' end, 'number ' || i
from generate_series(1, 30) i
"""


async def bury(rig: Rig) -> None:
    """Thirty dead letters of two queues, three keys, two reasons, an hour apart."""
    await rig.sql(BURY.replace(":epoch", "timestamptz '2026-03-01 00:00Z'"))


@pytest.fixture
async def buried(driver_rig: Rig) -> Rig:
    await bury(driver_rig)
    return driver_rig


async def found(rig: Rig, **selection: Any) -> list[int]:
    return [letter.original_id for letter in await rig.letters.find(Selection(**selection))]


SELECTIONS: list[tuple[dict[str, Any], set[int]]] = [
    ({"everything": True}, set(range(1, 31))),
    ({"queue": "orders"}, set(range(2, 31, 2))),
    ({"key": "k0"}, set(range(3, 31, 3))),
    ({"reason": "rejected"}, set(range(5, 31, 5))),
    ({"error_type": "ValueError"}, {i for i in range(1, 31) if i % 5}),
    ({"since": EPOCH + timedelta(hours=28)}, {28, 29, 30}),
    ({"until": EPOCH + timedelta(hours=3)}, {1, 2}),
    ({"ids": [3, 4, 9999]}, {3, 4}),
    ({"ids": []}, set()),
    ({"queue": "mails", "key": "k0", "reason": "rejected"}, {15}),
    ({"queue": "nobody"}, set()),
]


class TestSelection:
    async def test_narrows_what_is_found_and_counted_by_each_field(self, buried: Rig) -> None:
        for selection, expected in SELECTIONS:
            with case(selection):
                assert set(await found(buried, **selection)) == expected
                assert await buried.letters.count(Selection(**selection)) == len(expected)

    async def test_that_says_nothing_is_refused(self, buried: Rig) -> None:
        for call in ("find", "count", "replay", "purge"):
            with case(call), pytest.raises(InvalidOption, match=r"every dead letter.*Selection\(everything=True\)"):
                await getattr(buried.letters, call)(Selection())
        assert len(await buried.dead()) == 30


class TestFind:
    async def test_gives_pages_the_newest_first(self, buried: Rig) -> None:
        pages: list[list[int]] = []
        before: int | None = None
        while page := await buried.letters.find(Selection(queue="orders"), limit=6, before=before):
            pages.append([letter.original_id for letter in page])
            before = page[-1].id
        assert [number for page in pages for number in page] == list(range(30, 0, -2))
        assert [len(page) for page in pages] == [6, 6, 3]

    async def test_gives_everything_that_is_known(self, buried: Rig) -> None:
        (letter,) = await buried.letters.find(Selection(ids=[7]))
        (row,) = await buried.sql("select * from {d} where original_id = 7")
        assert {name: getattr(letter, name) for name in row} == dict(row)


class TestGroups:
    async def test_count_what_failed_alike_the_largest_first(self, buried: Rig) -> None:
        groups = await buried.letters.groups()
        found = [(group.count, group.reason, group.error_type, group.queue) for group in groups]
        many, few = (12, "retry_terminal", "ValueError"), (3, "rejected", None)
        assert sorted(found[:2]) == [(*many, "mails"), (*many, "orders")]
        assert sorted(found[2:], key=str) == [(*few, "mails"), (*few, "orders")]

    async def test_of_one_queue_know_their_first_and_last_failure(self, buried: Rig) -> None:
        groups = await buried.letters.groups("orders")
        (rejected,) = [group for group in groups if group.reason == "rejected"]
        moments = (rejected.first_failed_at, rejected.last_failed_at)
        assert [moment - EPOCH for moment in moments] == [timedelta(hours=10), timedelta(hours=30)]


class TestSummary:
    async def test_counts_what_of_a_selection_failed_alike(self, buried: Rig) -> None:
        summary = await buried.letters.summary(Selection(queue="mails", key="k0"))
        assert [(group.queue, group.reason, group.error_type, group.count) for group in summary] == [
            ("mails", "retry_terminal", "ValueError", 4),
            ("mails", "rejected", None, 1),
        ]

    async def test_leaves_out_what_died_since(self, buried: Rig) -> None:
        before = await buried.letters.newest()
        await bury(buried)
        summary = await buried.letters.summary(Selection(everything=True), up_to=before)
        assert sum(group.count for group in summary) == 30


class TestEdit:
    async def test_changes_what_is_given_and_leaves_the_rest(self, buried: Rig) -> None:
        edits: list[tuple[dict[str, Any], tuple[bytes, dict[str, Any]]]] = [
            ({"payload": b"repaired"}, (b"repaired", {"a": 1})),
            ({"headers": {"b": [2]}}, (b"2", {"b": [2]})),
            ({"payload": b"", "headers": {}}, (b"", {})),
        ]
        for number, (edit, expected) in enumerate(edits, 1):
            with case(edit):
                assert await buried.letters.edit(number, **edit)
                (letter,) = await buried.letters.find(Selection(ids=[number]))
                assert (letter.payload, letter.headers) == expected

    async def test_of_one_that_is_not_there_says_so(self, buried: Rig) -> None:
        assert not await buried.letters.edit(9999, payload=b"x")

    async def test_refuses_what_cannot_be_stored_and_leaves_what_is_there(self, buried: Rig) -> None:
        wrong: Any
        for wrong in ("", 0, [], "text"):
            with pytest.raises(TypeError, match="body must be bytes"):
                await buried.letters.edit(1, payload=wrong)
        with pytest.raises(ValueError, match="NUL"):
            await buried.letters.edit(1, headers={"a": "\x00"})
        (letter,) = await buried.letters.find(Selection(ids=[1]))
        assert (letter.payload, letter.headers) == (b"1", {"a": 1})


@pytest.mark.slow
@pytest.mark.parametrize("way", ["replay", "purge"])
async def test_the_selection_is_taken_and_nothing_else(driver_rig: Rig, way: str) -> None:
    rig = driver_rig
    for selection, expected in SELECTIONS:
        await rig.sql("truncate {d}, {t} restart identity")
        await bury(rig)
        with case(selection):
            taken = await getattr(rig.letters, way)(Selection(**selection), slice_size=4)
            put_back = sorted(expected) if way == "replay" else []
            assert taken == (len(expected) if way == "purge" else Replay(len(expected), len(expected)))
            assert {row["original_id"] for row in await rig.dead()} == set(range(1, 31)) - expected
            assert [row["id"] for row in await rig.rows()] == put_back


@pytest.mark.slow
async def test_purge_leaves_what_died_since_and_can_be_followed(buried: Rig) -> None:
    before = await buried.letters.newest()
    await bury(buried)
    steps: list[int] = []
    orders, options = Selection(queue="orders"), {"rate": 10_000, "on_progress": steps.append, "up_to": before}
    assert (await buried.letters.purge(orders, slice_size=10, **options), steps) == (15, [10, 15])
    assert await buried.letters.count(orders) == 15


async def test_times_outside_the_calendar_can_be_read(driver_rig: Rig) -> None:
    await driver_rig.sql(
        "insert into {d} (original_id, message_id, queue, payload, created_at, first_attempt_at, last_attempt_at,"
        " failed_at, failure_reason, attempts_count, deliveries_count, priority)"
        " values (1, gen_random_uuid(), 'orders', '', '10001-01-01', '0044-03-15 BC', 'infinity', '-infinity', 'x',"
        " 1, 1, 0)"
    )
    (letter,) = await driver_rig.letters.find(Selection(queue="orders"))
    (group,) = await driver_rig.letters.groups("orders")
    years = [letter.created_at.year, letter.failed_at.year, group.first_failed_at.year]
    assert years == [9998, 2, 2]


async def test_rate_may_be_said_anew_for_each_slice(rig: Rig) -> None:
    await bury(rig)
    heard: list[int] = []

    def rate(progress: Replay) -> float:
        heard.append(progress.replayed)
        return 1000.0 * len(heard)

    done = await rig.letters.replay(Selection(queue="orders"), rate=rate, slice_size=5)
    assert done.replayed == 15
    assert heard == [0, 5, 10, 15]
    with pytest.raises(InvalidOption, match="rate must be"):
        await rig.letters.replay(Selection(queue="mails"), rate=lambda progress: 0.0)


async def test_replay_that_is_stopped_tells_of_the_slice_that_is_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(rig)
    client, told, is_back = rig.letters._client, list[int](), asyncio.Event()
    control = client.control

    async def slow(name: str, values: Any, **more: Any) -> Any:
        rows = await control(name, values, **more)
        if name == "replay":
            is_back.set()
            # The answer is on its way.
            await asyncio.sleep(0.1)
        return rows

    monkeypatch.setattr(client, "control", slow)
    tell = {"on_progress": lambda progress: told.append(progress.replayed)}
    replaying = asyncio.create_task(rig.letters.replay(Selection(queue="orders"), slice_size=5, rate=1.0, **tell))
    await is_back.wait()
    replaying.cancel()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    assert told == [30 - len(await rig.dead())]
