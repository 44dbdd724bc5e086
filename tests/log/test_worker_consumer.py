"""`run`: messages are handled in the background until it is told to stop, whatever happens meanwhile."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from faststream_outbox import events
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, delivered
from tests.log.rig import LogRig, covers
from tests.waiting import eventually


class Running:
    """A `run` in the background."""

    def __init__(self, outbox: Outbox, subscriber: Any, group: str = "g", **options: Any) -> None:
        self.stop_event = asyncio.Event()
        self.task = asyncio.create_task(outbox.run(subscriber, group, stop_event=self.stop_event, **options))

    async def stop(self) -> None:
        self.stop_event.set()
        await self.task


async def test_messages_are_handled_as_they_come(driver_rig: LogRig) -> None:
    collector = Collector()
    running = Running(driver_rig.outbox, collector)
    for number in range(5):
        await driver_rig.put("k", number)
        await eventually(lambda expected=number: collector.payloads == list(range(expected + 1)))
    await running.stop()


async def test_messages_of_other_processes_are_heard_of_without_polling(rig: LogRig) -> None:
    collector = Collector()
    running = Running(rig.outbox, collector, poll_interval=3600.0)
    await rig.put("k", 1)
    await eventually(lambda: collector.payloads == [1])
    writer = await rig.writer()
    await writer.publish("k", 2)
    await writer.connection.exec_driver_sql("commit")
    await eventually(lambda: collector.payloads == [1, 2])
    await running.stop()


async def test_without_listening_messages_come_too(rig: LogRig) -> None:
    deaf = await rig.another(listen=False)
    collector = Collector()
    running = Running(deaf, collector, poll_interval=0.05)
    await rig.put("k", 1)
    await eventually(lambda: collector.payloads == [1])
    await running.stop()


async def test_stop_finishes_the_message_in_hand_and_no_more(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    entered, let_go = asyncio.Event(), asyncio.Event()
    seen: list[Any] = []

    async def slow(message: OutboxMessage) -> None:
        entered.set()
        await let_go.wait()
        seen.append(message.payload)

    running = Running(rig.outbox, slow)
    await entered.wait()
    running.stop_event.set()
    await asyncio.sleep(0.05)
    assert not running.task.done()
    let_go.set()
    await running.task
    assert seen == [1]
    assert await delivered(rig.outbox, "g") == [2, 3]


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
    failures: list[events.StatementFailed] = []
    rig.outbox.client.events.subscribe(failures.append, events.StatementFailed)
    members = [Running(rig.outbox, Collector()) for _ in range(12)]
    await eventually(lambda: len(rig.outbox.client.members) == 12)
    await rig.put("k", 1)
    monkeypatch.setattr(rig.outbox.client.connection, "fetch", SlowLeaving(rig.outbox, seconds).fetch)
    await asyncio.gather(*(member.stop() for member in members))
    assert [event.role for event in failures] == ["leaving"] * lost


async def test_concurrency_handles_keys_side_by_side_and_each_in_order(rig: LogRig) -> None:
    keys = [f"k{number}" for number in range(40)]
    for number in range(5):
        for key in keys:
            await rig.put(key, number)
    collector = Collector()

    async def handle(message: OutboxMessage) -> None:
        await asyncio.sleep(0.001)
        await collector(message)

    running = Running(rig.outbox, handle, concurrency=4)
    await eventually(lambda: len(collector.payloads) >= 200)
    await running.stop()
    assert {key: collector.of(key) for key in keys} == {key: [0, 1, 2, 3, 4] for key in keys}


@pytest.mark.slow
async def test_processes_that_come_and_go_lose_nothing_and_reorder_nothing(rig: LogRig) -> None:
    keys = [f"k{number}" for number in range(30)]
    collector = Collector()

    async def handle(message: OutboxMessage) -> None:
        await asyncio.sleep(0.001)
        await collector(message)

    outboxes = [await rig.another(batch_size=20) for _ in range(3)]
    running = [Running(outboxes[0], handle)]
    for number in range(12):
        for key in keys:
            await rig.put(key, number)
        if number == 3:
            running.append(Running(outboxes[1], handle, concurrency=2))
        if number == 6:
            await running.pop(0).stop()
            running.append(Running(outboxes[2], handle))
        if number == 9:
            await running.pop(0).stop()
    await eventually(lambda: len(collector.payloads) >= 360)
    for each in running:
        await each.stop()
    assert {key: collector.of(key) for key in keys} == {key: list(range(12)) for key in keys}
    assert covers(await rig.spans())


async def test_static_processes_share_by_their_numbers(rig: LogRig) -> None:
    first, second = await rig.another(), await rig.another()
    collectors = [Collector(), Collector()]
    running = [
        Running(outbox, collector, process_id=number, num_processes=2, concurrency=2)
        for number, (outbox, collector) in enumerate(zip((first, second), collectors, strict=True))
    ]
    for number in range(60):
        await rig.put(f"k{number}", number)
    await eventually(lambda: sum(len(collector.payloads) for collector in collectors) >= 60)
    for each in running:
        await each.stop()
    assert sorted([*collectors[0].payloads, *collectors[1].payloads]) == list(range(60))
    assert all(collector.payloads for collector in collectors)


async def test_failed_message_is_tried_again_when_it_is_due(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.05))
    await rig.put("k", 1, 2)
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        seen.append(message.payload)
        if seen.count(1) < 3 and message.payload == 1:
            raise ValueError(message.payload)

    running = Running(outbox, handle, poll_interval=3600.0)
    await eventually(lambda: seen == [1, 1, 1, 2])
    await running.stop()
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

    running = Running(outbox, handle, poll_interval=3600.0)

    async def is_parked() -> bool:
        return len(await operator.parked.list("g")) == 1

    await eventually(is_parked)
    await operator.parked.retry("g")
    await eventually(lambda: seen == [1, 1, 2])
    await running.stop()


async def test_killed_connections_are_made_anew_and_nothing_is_lost(rig: LogRig) -> None:
    collector = Collector()
    running = Running(rig.outbox, collector, poll_interval=0.2)
    await rig.put("k", 1)
    await eventually(lambda: collector.payloads == [1])
    async with rig.engine.connect() as connection:
        await connection.execute(
            text(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        )
    await rig.engine.dispose()
    await rig.put("k", 2)
    await eventually(lambda: 2 in collector.payloads)
    await running.stop()
    assert collector.payloads == [1, 2]


@pytest.mark.slow
async def test_long_handler_keeps_its_slots(rig: LogRig) -> None:
    outbox, other = await rig.another(lease_ttl_seconds=3.0), await rig.another(lease_ttl_seconds=3.0)
    await rig.put("k", 1)
    seen: list[Any] = []
    let_go = asyncio.Event()

    async def slow(message: OutboxMessage) -> None:
        seen.append(message.payload)
        await let_go.wait()

    running = [Running(outbox, slow), Running(other, slow)]
    await eventually(lambda: seen)
    await asyncio.sleep(3.5)
    let_go.set()
    for each in running:
        await each.stop()
    assert seen == [1]


async def test_group_that_is_read_is_not_stalled_by_a_seek_of_another_that_is_not_committed(rig: LogRig) -> None:
    """An operator's open transaction holds the rows of one group; the other groups of the process go on."""
    await rig.put("k", 1)
    held, free = Collector(), Collector()
    running = [Running(rig.outbox, held, "held"), Running(rig.outbox, free, "free")]
    await eventually(lambda: held.payloads == free.payloads == [1])
    operator = await rig.writer()
    await rig.outbox.set_position(operator.connection, "held")
    await rig.put("k", 2)
    await eventually(lambda: 2 in free.payloads)
    await rig.put("k", 3)
    await eventually(lambda: 3 in free.payloads)
    await operator.commit()
    for each in running:
        await each.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"process_id": 2, "num_processes": 2},
        {"process_id": -1, "num_processes": 2},
        {"num_processes": 0},
        {"num_processes": 257},
        {"concurrency": 0},
        {"num_processes": 64, "concurrency": 8},
        {"poll_interval": 0},
    ],
    ids=repr,
)
async def test_shares_that_cannot_be_are_refused(rig: LogRig, wrong: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    stopped.set()
    with pytest.raises((InvalidOption, InvalidOptionType)):
        await rig.outbox.run(Collector(), "g", stop_event=stopped, **wrong)


@pytest.mark.parametrize(
    "wrong", [{"worker_id": 1}, {"num_workers": 300}, {"worker_id": True, "num_workers": 2}], ids=repr
)
async def test_worker_that_cannot_be_is_refused(rig: LogRig, wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType)):
        await rig.outbox.dispatch(Collector(), "g", **wrong)
