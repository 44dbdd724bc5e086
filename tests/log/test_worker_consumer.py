"""`run`: messages are handled in the background until it is told to stop, whatever happens meanwhile."""

import asyncio
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log import Outbox, OutboxMessage
from tests.cases import case
from tests.log.opened import Collector, reading
from tests.log.rig import LogRig, covers
from tests.waiting import eventually


async def test_messages_are_handled_as_they_come(driver_rig: LogRig) -> None:
    collector = Collector()
    async with reading(driver_rig.outbox, collector, "g", concurrency=2, poll_interval=3600.0):
        for number in range(5):
            await driver_rig.put(f"k{number}", number)
            await eventually(lambda expected=number: collector.payloads == list(range(expected + 1)))


async def test_messages_of_other_processes_are_heard_of_without_polling(rig: LogRig) -> None:
    """By the ticks of the process itself, without a word from the publisher."""
    collector = Collector()
    async with reading(rig.outbox, collector, "g", poll_interval=3600.0):
        await rig.put("k", 1)
        await eventually(lambda: collector.payloads == [1])
        writer = await rig.writer()
        await writer.publish("k", 2)
        await writer.connection.exec_driver_sql("commit")
        await eventually(lambda: collector.payloads == [1, 2])


async def test_without_listening_messages_come_too(rig: LogRig) -> None:
    collector = Collector()
    async with reading(await rig.another(listen=False), collector, "g", poll_interval=0.05):
        await rig.put("k", 1)
        await eventually(lambda: collector.payloads == [1])


class SlowLeaving:
    """Members leave one after the other, and each takes a while, or never gets an answer."""

    def __init__(self, outbox: Outbox, seconds: float) -> None:
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._connection = outbox.client.connection
        self._fetch = self._connection.fetch

    async def fetch(self, statement: Any, values: Any) -> Any:
        if "delete from" in statement.dollar and "pg_notify" in statement.dollar:
            async with self._turn:
                await asyncio.sleep(self._seconds)
        return await self._fetch(statement, values)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "patience", "lost"), [(0.5, 5.0, 0), (3600.0, 1.0, 12)], ids=["slow", "silent"])
async def test_members_leave_one_after_the_other_as_long_as_the_server_answers(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch, seconds: float, patience: float, lost: int
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.log.worker.PATIENCE", patience)
    stop = asyncio.Event()
    members = [asyncio.create_task(rig.outbox.run(Collector(), "g", stop_event=stop)) for _ in range(12)]
    await eventually(lambda: len(rig.outbox.client.members) == 12)
    await rig.put("k", 1)
    monkeypatch.setattr(rig.outbox.client.connection, "fetch", SlowLeaving(rig.outbox, seconds).fetch)
    stop.set()
    await asyncio.gather(*members)
    assert [event.role for event in rig.reported(events.StatementFailed)] == ["leaving"] * lost


class Slowly(Collector):
    """Takes its time."""

    async def __call__(self, message: OutboxMessage) -> None:
        await asyncio.sleep(0.001)
        await super().__call__(message)


@pytest.mark.slow
async def test_processes_that_come_and_go_lose_nothing_and_reorder_nothing(rig: LogRig) -> None:
    keys = [f"k{number}" for number in range(30)]
    slowly = Slowly()
    outboxes = [await rig.another(batch_size=20) for _ in range(3)]
    async with reading(outboxes[2], slowly, "g", concurrency=3):
        async with reading(outboxes[1], slowly, "g", concurrency=2):
            async with reading(outboxes[0], slowly, "g"):
                await rig.put_all(keys, *range(4))
                await eventually(lambda: len(slowly.payloads) > 30)
            await rig.put_all(keys, *range(4, 8))
        await rig.put_all(keys, *range(8, 12))
        await eventually(lambda: len(slowly.payloads) >= 360)
    assert {key: slowly.of(key) for key in keys} == {key: list(range(12)) for key in keys}
    assert covers(await rig.spans())


async def test_static_processes_share_by_their_numbers(rig: LogRig) -> None:
    keys, shares = [f"k{number}" for number in range(60)], [Collector(), Collector()]
    options: list[dict[str, Any]] = [{"process_id": number, "num_processes": 2} for number in range(2)]
    first, second = await rig.another(), await rig.another()
    async with (
        reading(first, shares[0], "g", concurrency=2, **options[0]),
        reading(second, shares[1], "g", concurrency=2, **options[1]),
    ):
        await rig.put_all(keys, 1)
        await eventually(lambda: sum(len(share.payloads) for share in shares) >= 60)
    uris = [[message.uri for message in share.messages] for share in shares]
    assert all(uris)
    assert sorted([*uris[0], *uris[1]]) == sorted(keys)


async def test_failed_message_is_tried_again_when_it_is_due(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.05))
    await rig.put("k", 1, 2)
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        seen.append(message.payload)
        if seen.count(1) < 3 and message.payload == 1:
            raise ValueError(message.payload)

    async with reading(outbox, handle, "g", poll_interval=3600.0):
        await eventually(lambda: seen == [1, 1, 1, 2])
    assert await rig.deferrals() == []


async def test_word_of_an_operator_is_heeded_at_once(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600, max_attempts=1), on_parked="hold_key")
    operator = await rig.another()
    await rig.put("k", 1, 2)
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        seen.append(message.payload)
        if len(seen) == 1:
            raise ValueError(message.payload)

    async with reading(outbox, handle, "g", poll_interval=3600.0):
        await eventually(lambda: operator.parked.list("g"))
        await operator.parked.retry("g")
        await eventually(lambda: seen == [1, 1, 2])


async def test_killed_connections_are_made_anew_and_nothing_is_lost(rig: LogRig) -> None:
    collector = Collector()
    async with reading(rig.outbox, collector, "g", poll_interval=0.2):
        await rig.put("k", 1)
        await eventually(lambda: collector.payloads == [1])
        await rig.ask(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        await rig.engine.dispose()
        await rig.put("k", 2)
        await eventually(lambda: 2 in collector.payloads)
    assert collector.payloads == [1, 2]


@pytest.mark.slow
async def test_long_handler_keeps_its_slots(rig: LogRig) -> None:
    outboxes = [await rig.another(lease_ttl_seconds=3.0) for _ in range(2)]
    await rig.put("k", 1)
    seen: list[Any] = []
    let_go = asyncio.Event()

    async def slow(message: OutboxMessage) -> None:
        seen.append(message.payload)
        await let_go.wait()

    async with reading(outboxes[0], slow, "g"), reading(outboxes[1], slow, "g"):
        await eventually(lambda: seen)
        await asyncio.sleep(3.5)
        let_go.set()
    assert seen == [1]


async def test_group_that_is_read_is_not_stalled_by_a_seek_of_another_that_is_not_committed(rig: LogRig) -> None:
    """An operator's open transaction holds the rows of one group; the other groups of the process go on."""
    await rig.put("k", 1)
    held, free = Collector(), Collector()
    async with reading(rig.outbox, held, "held"), reading(rig.outbox, free, "free"):
        await eventually(lambda: held.payloads == free.payloads == [1])
        operator = await rig.writer()
        await rig.outbox.set_position(operator.connection, "held")
        for number in (2, 3):
            await rig.put("k", number)
            await eventually(lambda expected=number: expected in free.payloads)
        await operator.commit()


async def test_shares_that_cannot_be_are_refused(rig: LogRig) -> None:
    stopped = asyncio.Event()
    stopped.set()
    wrongs: list[dict[str, Any]] = [
        {"process_id": 2, "num_processes": 2},
        {"process_id": -1, "num_processes": 2},
        {"num_processes": 0},
        {"num_processes": 257},
        {"concurrency": 0},
        {"num_processes": 64, "concurrency": 8},
        {"poll_interval": 0},
    ]
    for wrong in wrongs:
        with case(wrong), pytest.raises((InvalidOption, InvalidOptionType)):
            await rig.outbox.run(Collector(), "g", stop_event=stopped, **wrong)


async def test_worker_that_cannot_be_is_refused(rig: LogRig) -> None:
    wrongs: list[dict[str, Any]] = [
        {"worker_id": 1},
        {"num_workers": 300},
        {"worker_id": True, "num_workers": 2},
    ]
    for wrong in wrongs:
        with case(wrong), pytest.raises((InvalidOption, InvalidOptionType)):
            await rig.outbox.dispatch(Collector(), "g", **wrong)
