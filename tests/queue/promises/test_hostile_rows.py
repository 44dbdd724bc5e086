"""Whatever a row holds, it fails alone: who may insert can write into every column what no publisher would."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.envelope import UNREADABLE
from faststream_outbox.overview import fetch_unprocessed
from faststream_outbox.queue import DONE, RELEASE, Claim, Dead, Outcome, Retry, Selection
from tests.queue.rig import Rig, Seen
from tests.waiting import eventually

FIRST, LAST = -(2**63), 2**63 - 1
MOMENTS = ["10001-01-01", "0044-03-15 BC", "infinity", "-infinity"]
DEEP = "[" * 2000 + "]" * 2000

VALUES: dict[str, tuple[str, list[Any]]] = {
    "created_at": ("timestamptz", MOMENTS),
    "first_attempt_at": ("timestamptz", MOMENTS),
    "last_attempt_at": ("timestamptz", MOMENTS),
    "next_attempt_at": ("timestamptz", ["0044-03-15 BC", "-infinity"]),
    "attempts_count": ("bigint", [FIRST, LAST]),
    "deliveries_count": ("bigint", [FIRST, LAST]),
    "priority": ("smallint", [-32768, 32767]),
    "id": ("bigint", [FIRST, LAST]),
    "timer_id": ("text", ["", "a'b\"c%s:d\\", "ł漢"]),
    "message_id": ("uuid", ["00000000-0000-0000-0000-000000000000"]),
    "headers": (
        "jsonb",
        ["null", "[]", "[1]", "5", '"text"', DEEP, f'{{"a": {DEEP}}}', f'{{"a": {"9" * 5000}}}', "1e10000"],
    ),
}
OUTCOMES: dict[str, Outcome] = {
    "done": DONE,
    "retry": Retry(3600.0),
    "later": Retry(3600.0, counts=False),
    "release": RELEASE,
    "dead": Dead(),
}


async def insert_hostile(rig: Rig, queues: list[str]) -> int:
    """A row for each hostile value in each queue, with and without a key, among good ones; how many of either."""
    count = 0
    for column, (kind, values) in VALUES.items():
        value = f"cast(v.value as {kind})"
        if column == "id":
            # One of each end of the type for the first row, and its neighbours for the others.
            value += (
                " + (case when v.value like '-%' then 1 else -1 end) * (row_number() over (partition by v.value) - 1)"
            )
        elif column == "timer_id":
            value += " || coalesce(k.key, '')"
        count += 2 * len(queues) * len(values)
        await rig.sql(
            f"insert into {{t}} (queue, key, payload, {column})"
            f" select q.queue, k.key || md5(v.value), 'hostile', {value} from unnest(cast(:queues as text[])) q (queue)"
            f" cross join unnest(array[null, '{column}']) k (key) cross join unnest(cast(:values as text[])) v (value)",
            queues=queues,
            values=[str(value) for value in values],
        )
        await rig.sql(
            "insert into {t} (queue, key, payload) select q.queue, k.key, 'good'"
            " from unnest(cast(:queues as text[])) q (queue) cross join unnest(array[null, 'good']) k (key)"
            " cross join generate_series(1, :count)",
            queues=queues,
            count=len(values),
        )
    return count


async def test_a_hostile_row_fails_alone_whatever_becomes_of_it(driver_rig: Rig) -> None:
    rig = driver_rig
    good: Counter[tuple[str, int]] = Counter()
    released: set[int] = set()

    async def handle(claim: Claim) -> Outcome:
        assert claim.payload != b"later"
        if claim.payload == b"good":
            good[claim.queue, claim.deliveries_count] += 1
            return DONE
        assert isinstance(claim.headers, dict)
        assert not claim.headers or {"a", UNREADABLE} & claim.headers.keys()
        assert all(at is None or at.tzinfo for at in (claim.created_at, claim.first_attempt_at, claim.last_attempt_at))
        if claim.id in released:
            return DONE
        released.add(claim.id)
        return OUTCOMES[claim.queue]

    count = await insert_hostile(rig, [*OUTCOMES])
    async with AsyncSession(rig.engine) as session:
        assert len(await fetch_unprocessed(session, rig.table)) == 2 * count
        assert len(await fetch_unprocessed(session, rig.table, queue="done")) == 2 * count // len(OUTCOMES)
    # Nor do those that are due when the calendar has ended.
    later = "insert into {t} (queue, payload, next_attempt_at) select unnest(cast(:queues as text[])), 'later', "
    for due in ("'10001-01-01'", "'infinity'"):
        await rig.sql(later + due, queues=[*OUTCOMES])
    await rig.work(handle, [*OUTCOMES], max_workers=16, fetch_batch_size=50)

    async def is_settled() -> bool:
        waiting = "select count(*) from {t} where next_attempt_at <= now() or acquired_token is not null"
        return good.total() == count and not await rig.one(waiting)

    await eventually(is_settled)
    assert good == {(queue, 1): count // len(OUTCOMES) for queue in OUTCOMES}
    assert (
        rig.witness.of(events.MessageSetApart, events.OutcomeRefused, events.LoopCrashed, events.StatementFailed) == []
    )


async def test_hostile_dead_letters_are_listed_and_replayed(driver_rig: Rig) -> None:
    rig = driver_rig

    count = 2 * await insert_hostile(rig, ["orders"])
    worker = await rig.work(Seen(lambda claim: Dead()), max_workers=16, fetch_batch_size=50)
    await eventually(rig.is_empty)
    await worker.stop()
    everything = Selection(everything=True)
    assert len(await rig.letters.find(everything, limit=1000)) == count
    assert sum(group.count for group in await rig.letters.groups()) == count
    assert (await rig.letters.replay(everything, slice_size=10)).replayed == count
    # Ids are left to draw.
    await rig.put("a message published afterwards")


async def test_of_two_dead_letters_with_one_id_the_other_stays(rig: Rig) -> None:
    await rig.sql(
        "insert into {d} (original_id, message_id, queue, payload, created_at, failure_reason)"
        " select 7, gen_random_uuid(), 'orders', payload, now(), 'rejected'"
        " from unnest(array['a', 'b', 'c']::bytea[]) payload"
    )
    replay = await rig.letters.replay(Selection(queue="orders"), slice_size=2)
    assert (replay.replayed, len(replay.conflicts)) == (1, 2)
    assert [row["payload"] for row in await rig.rows()] == [b"a"]
    assert [row["payload"] for row in await rig.dead()] == [b"b", b"c"]


BEFORE_THE_CALENDAR = [
    "-infinity",
    "4713-01-01 BC",
    "0044-03-15 BC",
    "0001-01-01",
    "0001-12-31 23:59:59Z",
    "0002-01-02",
]


@pytest.mark.parametrize("key", ["null", "'one key'", "'key ' || n"])
async def test_rows_due_before_the_calendar_are_taken_one_after_the_other(
    driver_rig: Rig, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.queue.keyed.KEY_WINDOW", 1)
    rig = driver_rig
    handle = Seen()
    # Ids that grow with the due time in one queue, and that fall, below zero, in the other.
    for queue, number in (("growing", "n"), ("falling", "-n")):
        await rig.sql(
            "insert into {t} (id, queue, key, payload, next_attempt_at)"
            f" select {number}, '{queue}', {key}, convert_to('{queue}' || n, 'utf8'), cast(due as timestamptz)"
            " from unnest(cast(:moments as text[])) with ordinality as u (due, n)",
            moments=BEFORE_THE_CALENDAR,
        )
    await rig.work(handle, ["growing", "falling"], fetch_batch_size=1)
    await eventually(rig.is_empty)
    assert sorted(handle.bodies) == sorted(f"{queue}{n}" for queue in ("growing", "falling") for n in range(1, 7))
