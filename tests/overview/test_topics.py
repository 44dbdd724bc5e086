"""What an operator asks about topics: groups, slots and blocked keys, on a connection that only reads."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox._internal.log.admin import positions as lag
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox._internal.overview import topics
from faststream_outbox._internal.overview.topics import BlockedKey
from faststream_outbox.errors import InvalidOption, UnknownName
from faststream_outbox.log import OutboxMessage
from faststream_outbox.overview import Overview, Process
from tests.log.conftest import driver_rig, rig
from tests.log.opened import Collector
from tests.log.rig import LogRig

__all__ = ["driver_rig", "rig"]

LATER = ConstantRetry(delay_seconds=3600)


@pytest.fixture
async def overview(rig: LogRig) -> AsyncIterator[Overview]:
    overview = Overview(rig.engine, log_tables=rig.outbox.tables)
    yield overview
    await overview.close()


@pytest.fixture
async def overview_by(driver_rig: LogRig) -> AsyncIterator[Overview]:
    overview = Overview(driver_rig.engine, log_tables=driver_rig.outbox.tables)
    yield overview
    await overview.close()


async def refuse(message: OutboxMessage) -> None:
    raise ValueError(message.payload)


async def start(rig: LogRig, group: str, uri: str = "") -> None:
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.seek(session, "earliest", group, uri, create=True)


async def test_groups_of_one_name_are_told_apart_by_what_they_read(driver_rig: LogRig, overview_by: Overview) -> None:
    rig = driver_rig
    await start(rig, "g", "orders")
    await start(rig, "g", "mails")
    await rig.put("orders/1", 1, 2)
    await rig.put("mails/1", 1)
    await rig.sequence()
    found = await overview_by.groups("g")
    assert [(each.group, each.uri, each.messages) for each in found] == [("g", "mails", 1), ("g", "orders", 2)]
    assert [each.slots for each in await overview_by.slots("g", "mails")] == [(0, 255)]


async def test_what_nobody_has_sequenced_is_unread(rig: LogRig, overview: Overview) -> None:
    """Where no consumer runs, nobody makes ticks: the lag must not stand still."""
    await start(rig, "all")
    await start(rig, "some", "orders")
    await rig.put("orders/1", 1)
    await rig.sequence()
    await rig.put("orders/1", 2)
    await rig.put("mails/1", 3)
    await rig.ask("update {log} set created_at = now() - interval '1 hour' where position = 2")
    everything, some = await overview.groups()
    assert (everything.messages, some.messages) == (3, 2)
    assert (everything.is_estimate, some.is_estimate) == (False, False)
    assert some.seconds >= 3600
    await rig.sequence()
    assert [each.messages for each in await overview.groups()] == [3, 2]


async def test_what_nobody_has_sequenced_is_counted_up_to_a_limit(
    rig: LogRig, overview: Overview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lag, "MOST", 10)
    monkeypatch.setattr(lag, "LEAST", 10)
    await start(rig, "g")
    await rig.put("k", *range(100))
    (found,) = await overview.groups()
    assert (found.messages, found.is_estimate) == (100, True)


async def test_times_that_make_no_sense_do_not_break_the_lag(driver_rig: LogRig, overview_by: Overview) -> None:
    await start(driver_rig, "g")
    await driver_rig.put("k", 1)
    for created_at in ("infinity", "-infinity", "9999-01-01"):
        await driver_rig.ask(f"update {{log}} set created_at = '{created_at}'")
        (found,) = await overview_by.groups()
        assert (found.messages, found.seconds >= 0) == (1, True), created_at


async def test_span_tells_who_reads_it(rig: LogRig, overview: Overview, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.put("k", 1)
    await rig.sequence()
    reader = await rig.reader(fixed=(0, 127))
    await reader.arrange()
    await rig.outbox.dispatch(Collector(), "g", worker_id=1, num_workers=2)
    owner_id = reader.member.leases.me.hex[:8]
    process = Process(owner_id, "host", 7, ("read",), (1, 2), datetime.now(UTC), 0, 128)

    async def processes(_: Overview) -> list[Process]:
        return [process]

    monkeypatch.setattr(Overview, "processes", processes)
    first, second = await overview.slots("g")
    assert (first.slots, first.owner_id, first.owner) == ((0, 127), owner_id, process)
    assert first.leased_until is not None
    assert (second.slots, second.owner_id, second.owner, second.leased_until) == ((128, 255), None, None, None)
    assert first.messages + second.messages <= 1
    await rig.ask("update {offsets} set until = now() - interval '1 second'")
    assert [each.owner_id for each in await overview.slots("g")] == [None, None], "the lease of a killed process"


async def test_group_that_nobody_has_heard_of_is_refused_with_the_nearest(rig: LogRig, overview: Overview) -> None:
    await start(rig, "billing")
    for ask in (overview.groups, overview.slots, overview.blocked_keys):
        with pytest.raises(UnknownName, match=r"'biling'.*'billing'"):
            await ask("biling")
    with pytest.raises(UnknownName, match="reads every URI, not 'orders'"):
        await overview.slots("billing", "orders")


async def test_without_topics_there_is_nothing_to_tell(rig: LogRig) -> None:
    overview = Overview(rig.engine)
    assert (await overview.groups(), await overview.blocked_keys(), await overview.gaps()) == ([], [], [])
    with pytest.raises(InvalidOption, match="log_tables"):
        await overview.slots("g")


async def fail(rig: LogRig, group: str, **options: Any) -> None:
    """Let a group read what there is; every first message of a key fails."""
    outbox = await rig.another(**options)
    while await outbox.dispatch(refuse, group):
        pass


async def shown(overview: Overview, group: str | None = None, **options: Any) -> list[tuple[Any, ...]]:
    found = await overview.blocked_keys(group, **options)
    return [(each.group, each.key, each.position, each.state, each.waiting) for each in found]


async def test_key_waits_for_a_message_that_is_retried(driver_rig: LogRig, overview_by: Overview) -> None:
    rig, overview = driver_rig, overview_by
    await rig.put("few", "poison", 2)
    await rig.put("many", "poison", 2, 3)
    await rig.put("alone", "poison")
    before = datetime.now(UTC)
    await fail(rig, "g", retry_strategy=LATER)
    assert await shown(overview) == [("g", "many", 3, "retrying", 2), ("g", "few", 1, "retrying", 1)]
    many = (await overview.blocked_keys("g"))[0]
    assert (many.error, many.attempts, many.is_estimate, many.has_more) == ("ValueError: poison", 1, False, False)
    assert before - timedelta(minutes=5) < many.since < datetime.now(UTC) + timedelta(minutes=5)
    assert many.due > datetime.now(UTC) + timedelta(minutes=30)


async def test_key_waits_for_a_message_that_is_parked(rig: LogRig, overview: Overview) -> None:
    await rig.put("k", "poison", 2, 3)
    await rig.put("alone", "poison")
    await fail(rig, "held", retry_strategy=NoRetry(), on_parked="hold_key")
    assert await shown(overview) == [("held", "k", 1, "parked", 2)]
    (found,) = await overview.blocked_keys()
    assert (found.error, found.due) == ("ValueError: poison", None)


RETRIED_BEHIND = (
    "update {deferred} set state = case position when 2 then 'retry' else 'deferred' end where position > 1"
)


@pytest.mark.parametrize(
    ("strategy", "changed", "found"),
    [
        pytest.param(NoRetry(), None, [], id="nobody waits for what was parked"),
        pytest.param(LATER, "delete from {deferred} where position = 1", [], id="the one in front was done just now"),
        pytest.param(NoRetry(), RETRIED_BEHIND, [("g", "k", 2, "retrying", 1)], id="a retried one behind a parked one"),
    ],
)
async def test_only_a_key_that_waits_for_a_failure_is_blocked(
    rig: LogRig, overview: Overview, strategy: Any, changed: str | None, found: list[Any]
) -> None:
    await rig.put("k", "poison", 2, 3)
    await fail(rig, "g", retry_strategy=strategy)
    if changed is not None:
        await rig.ask(changed)
    assert await shown(overview) == found


async def defer(rig: LogRig, group: str, keys: int, each: int) -> None:
    """Keys of a group that wait, as a consumer leaves them."""
    await start(rig, group)
    await rig.ask(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        f"select '{group}', '', k * 1000 + n, 1, k % 256, 'k' || k, case when n = 0 then 'retry' else 'deferred' end "
        f"from generate_series(1, {keys}) k, generate_series(0, {each}) n"
    )


async def test_counting_is_limited_and_says_so(
    rig: LogRig, overview: Overview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MOST_COUNTED", 10)
    monkeypatch.setattr(topics, "LEAST_COUNTED", 5)
    await defer(rig, "g", keys=10, each=20)
    found = await overview.blocked_keys("g", limit=3)
    assert [(each.waiting, each.is_estimate, each.has_more) for each in found] == [(5, True, False)] * 3


async def test_keys_of_one_group_do_not_hide_those_of_another(
    rig: LogRig, overview: Overview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "KEYS", 4)
    monkeypatch.setattr(topics, "LEAST_KEYS", 2)
    await defer(rig, "a", keys=20, each=5)
    await defer(rig, "b", keys=2, each=1)
    found = await overview.blocked_keys()
    assert [(each.group, each.has_more) for each in found] == [("a", True)] * 2 + [("b", False)] * 2
    assert {each.group for each in await overview.blocked_keys("b")} == {"b"}


async def test_limit_that_makes_no_sense_is_refused(overview: Overview) -> None:
    for limit in (0, -1, 1_000_000):
        for ask in (overview.blocked_keys, overview.gaps):
            with pytest.raises(InvalidOption, match="limit"):
                await ask(limit=limit)


def test_error_without_a_message_is_its_type() -> None:
    row = topics.BlockedKeyRow("g", "", "k", 1, "retry", 1, False, False, datetime.now(UTC), 1, None, "KeyError", None)
    found: BlockedKey = topics._blocked(row)
    assert (found.state, found.error) == ("retrying", "KeyError")
    assert topics._blocked(row._replace(error_type=None)).error is None


async def test_operator_lists_and_deletes_groups_of_a_broker_that_was_never_started(rig: LogRig) -> None:
    await start(rig, "gone")
    await start(rig, "alive")
    queues = make_outbox_table(MetaData(), "no_such_table")
    broker = OutboxBroker(rig.engine, outbox_table=queues, log_tables=rig.outbox.tables, logger=None)
    assert [each.group for each in await broker.groups.list()] == ["alive", "gone"]
    await broker.groups.delete("gone")
    assert [each.group for each in await broker.groups.list()] == ["alive"]
    await broker.stop()


async def test_questions_at_once_wait_for_each_other(rig: LogRig, overview: Overview) -> None:
    await start(rig, "g")
    answers = await asyncio.gather(overview.groups(), overview.blocked_keys(), overview.gaps(), overview.groups())
    assert [len(answer) for answer in answers] == [1, 0, 0, 1]
