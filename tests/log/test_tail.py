"""The tail: members that have read everything are read for together, and cost others nothing while they wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Group, matches
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.events import StatementFailed
from faststream_outbox.log import Outbox
from tests.log.gate import Gate
from tests.log.opened import iterating
from tests.log.promises.test_lagging_standby import NEW, fail_over
from tests.log.rig import LogRig
from tests.waiting import eventually

TICKS = 20
IDLE = 12


class Seen:
    """What each group was given."""

    def __init__(self) -> None:
        self.payloads: dict[Group, list[Any]] = {}

    def worker(self, outbox: Outbox, group: Group, **options: Any) -> LogWorker:
        got = self.payloads.setdefault(group, [])

        async def handle(delivery: Delivery) -> Outcome:
            got.append(delivery.message.payload)
            return DONE

        members = options.pop("members", 1)
        return LogWorker(outbox.client, group, handle, options=ReadOptions(**options), members=members)


@asynccontextmanager
async def running(*workers: LogWorker) -> AsyncGenerator[None]:
    """Workers once all of their members wait for messages, and nothing calls them away: a listener that begins does."""
    for worker in workers:
        await worker.start()
    members = [consumer.member for worker in workers for consumer in worker.consumers]
    client = workers[0]._client

    def wait_at_the_end() -> bool:
        hears = client.listener is None or client.listener.is_hearing
        return hears and all(member in client.tail._seats and not member.is_unsettled for member in members)

    await eventually(wait_at_the_end, 20, "all wait at the end of the log")
    try:
        yield
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))


def often(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.05) -> None:
    """How often it is written how far members have come."""
    monkeypatch.setattr("faststream_outbox._internal.log.tail.PROGRESS_SECONDS", seconds)


async def passed_over(rig: LogRig, noticed: asyncio.Event) -> int:
    """Publish what nobody reads until something has happened, and give the number of ticks.

    Once may not do: a member that is woken meanwhile gets up, and passes over it by itself.
    """
    ticks = 0

    async def is_noticed() -> bool:
        nonlocal ticks
        if not noticed.is_set():
            await rig.put_apart("other", "not ours")
            ticks += 1
        return noticed.is_set()

    await eventually(is_noticed)
    return ticks


class Traffic:
    """Statements of one client, and the rows that they brought."""

    def __init__(self, outbox: Outbox, patch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        fetch = outbox.client.connection.fetch

        async def counted(statement: Statement, values: Mapping[str, Any]) -> Any:
            rows = await fetch(statement, values)
            self.sent[statement.name] += 1
            self.rows[statement.name] += len(rows)
            return rows

        patch.setattr(outbox.client.connection, "fetch", counted)


def idle(seen: Seen, outbox: Outbox) -> list[LogWorker]:
    return [seen.worker(outbox, Group(f"idle {number}", f"quiet/{number}")) for number in range(IDLE)]


async def caught_up(rig: LogRig, *uris: str) -> bool:
    """Whether cursors that have nothing to read are written at the end of the log."""
    (last,) = await rig.ask("select max(tick) as tick from {ticks}")
    rows = await rig.ask("select distinct tick from {offsets} where uri = any (:uris)", uris=list(uris))
    return [row["tick"] for row in rows] == [last["tick"]]


@pytest.mark.slow
async def test_members_with_nothing_to_read_cause_no_statement_for_a_tick(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, seen, busy = await rig.another(), Seen(), Group("busy", "orders")
    async with running(seen.worker(outbox, busy), *idle(seen, outbox)):
        traffic = Traffic(outbox, monkeypatch)
        for number in range(TICKS):
            await rig.put_apart("orders/1", number)
            await eventually(lambda wanted=number + 1: len(seen.payloads[busy]) == wanted)
    assert seen.payloads[busy] == list(range(TICKS))
    # One for each tick; a few more where a tick came while the busy one was not waiting yet.
    assert traffic.sent["fetch"] <= 2 * TICKS
    assert traffic.sent["move"] <= TICKS + IDLE, "only the busy one settles, and each writes its place when it stops"


@pytest.mark.slow
async def test_what_was_passed_over_is_written_for_all_by_one_statement(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    often(monkeypatch, 0.2)
    outbox, seen = await rig.another(), Seen()
    async with running(*idle(seen, outbox)):
        traffic = Traffic(outbox, monkeypatch)
        await rig.put_apart("orders/1", 1, 2, 3)
        await eventually(lambda: caught_up(rig, *[f"quiet/{number}" for number in range(IDLE)]), 10)
        assert traffic.sent["move"] == 0
        assert traffic.rows["move_each"] <= 3 * IDLE
        assert traffic.sent["move_each"] <= 3


async def test_what_nobody_here_reads_is_not_sent(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, seen = await rig.another(), Seen()
    async with running(seen.worker(outbox, Group("g", "orders"))):
        traffic = Traffic(outbox, monkeypatch)
        await rig.put("events/1", *range(50))
        await rig.put("orders/1", "mine")
        await eventually(lambda: seen.payloads[Group("g", "orders")] == ["mine"])
        assert traffic.rows["fetch"] == 1


URIS = ["", "a", "a/", "a/b", "ab", "c"]
KEYS = ["a", "a/", "a/b", "a/b/c", "a/x", "ab", "ab/c", "b", "c/d"]


@pytest.mark.slow
async def test_everybody_gets_what_it_reads_once_and_in_order(rig: LogRig) -> None:
    outbox, seen = await rig.another(), Seen()
    groups = [Group(f"g {uri}", uri) for uri in URIS]
    workers = [seen.worker(outbox, group, members=2 + number % 2) for number, group in enumerate(groups)]
    async with running(*workers):
        for number in range(240):
            key = KEYS[number * 7 % len(KEYS)]
            await rig.put(key, [key, number])
            if number % 30 == 0:
                await asyncio.sleep(0.05)
        for group in groups:
            expected = [n for n in range(240) if matches(KEYS[n * 7 % len(KEYS)], group.uri)]
            await eventually(lambda got=seen.payloads[group], all_of=expected: len(got) >= len(all_of), 20)
            assert sorted(number for _, number in seen.payloads[group]) == expected
            for key in KEYS:
                of_key = [number for name, number in seen.payloads[group] if name == key]
                assert of_key == sorted(of_key)


@pytest.mark.slow
async def test_places_that_were_passed_over_are_forgotten_with_the_server(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a standby that lacks the last ticks, other messages come under their numbers.

    Nobody is told of the change: no statement was under way, and the next one opens a connection.
    """
    often(monkeypatch, 3600.0)
    outbox, seen, mine = await rig.another(listen=False), Seen(), Group("g", "mine")
    await rig.put_apart("mine", "kept")
    async with running(seen.worker(outbox, mine, poll_interval=3600.0)):
        await rig.put_apart("other", *["not ours"] * 3)
        await eventually(lambda: outbox.client.tail._place.tick == 4)
        await fail_over(rig, 1)
        await outbox.client.connection.close()
        later = await rig.another()
        await rig.put_apart("mine", *NEW, *NEW, outbox=later)
        await eventually(lambda: seen.payloads[mine] == ["kept", *NEW, *NEW], 20)


@pytest.mark.slow
async def test_message_that_comes_while_places_are_written_is_handled_once(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settle must name the place from which it moves: that is known only after the answer."""
    often(monkeypatch)
    outbox, seen, mine = await rig.another(), Seen(), Group("g", "mine")
    async with running(seen.worker(outbox, mine)):
        answered, go_on = asyncio.Event(), asyncio.Event()
        fetch = outbox.client.connection.fetch

        async def late(statement: Statement, values: Mapping[str, Any]) -> Any:
            rows = await fetch(statement, values)
            if statement.name == "move_each":
                answered.set()
                await go_on.wait()
            return rows

        monkeypatch.setattr(outbox.client.connection, "fetch", late)
        ticks = await passed_over(rig, answered)
        await rig.put_apart("mine", "ours")
        await eventually(lambda: outbox.client.tail._place.tick == ticks + 1)
        go_on.set()
        await eventually(lambda: seen.payloads[mine] == ["ours"])
        await rig.put_apart("mine", "next")
        await eventually(lambda: "next" in seen.payloads[mine])
    assert seen.payloads[mine] == ["ours", "next"]


@pytest.mark.slow
async def test_answer_that_is_lost_when_places_are_written_costs_nothing(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows where the cursor is: it is found out before the next message is handled."""
    often(monkeypatch)
    outbox, seen, mine = await rig.another(), Seen(), Group("g", "mine")
    async with running(seen.worker(outbox, mine)):
        lost = asyncio.Event()
        fetch = outbox.client.connection.fetch

        async def losing(statement: Statement, values: Mapping[str, Any]) -> Any:
            rows = await fetch(statement, values)
            if statement.name == "move_each" and not lost.is_set():
                lost.set()
                # And not again: the next try would find out.
                often(monkeypatch, 3600.0)
                raise ConnectionError(statement.name)
            return rows

        monkeypatch.setattr(outbox.client.connection, "fetch", losing)
        await passed_over(rig, lost)
        await rig.put_apart("mine", "ours", "next")
        await eventually(lambda: "next" in seen.payloads[mine], 20)
    assert seen.payloads[mine] == ["ours", "next"]


@pytest.mark.slow
async def test_member_stops_although_the_answer_does_not_come(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    outbox, seen = await rig.another(), Seen()
    worker = seen.worker(outbox, Group("g", "mine"))
    async with running(worker):
        gate = Gate(outbox, "move_each")
        await passed_over(rig, gate.reached)
        try:
            await asyncio.wait_for(worker.stop(), 20)
        finally:
            gate.open.set()
    assert [span["owner"] for span in await rig.spans("g", "mine")] == [None]


async def test_member_that_leaves_while_ticks_are_read_is_no_trouble(rig: LogRig) -> None:
    outbox, seen, mine = await rig.another(), Seen(), Group("g", "mine")
    worker = seen.worker(outbox, mine)
    async with running(worker):
        gate = Gate(outbox, "ticks_after")
        await rig.put_apart("mine", "ours")
        await asyncio.wait_for(gate.reached.wait(), 20)
        (consumer,) = worker.consumers
        consumer.member.wake.set()
        await eventually(lambda: not outbox.client.tail._seats)
        gate.open.set()
        await eventually(lambda: seen.payloads[mine] == ["ours"])
    assert rig.reported(StatementFailed) == []


async def test_seek_while_a_member_waits_is_followed(rig: LogRig) -> None:
    outbox, seen, mine = await rig.another(), Seen(), Group("g", "mine")
    async with running(seen.worker(outbox, mine)):
        await rig.put_apart("mine", 1, 2)
        await eventually(lambda: seen.payloads[mine] == [1, 2])
        async with rig.engine.begin() as session:
            await rig.outbox.seek(session, "earliest", "g", "mine")
        await eventually(lambda: seen.payloads[mine] == [1, 2, 1, 2], 20)


async def test_iterator_beside_others_sees_everything(rig: LogRig) -> None:
    outbox, seen = await rig.another(), Seen()
    got: list[Any] = []
    async with running(seen.worker(outbox, Group("g", "other"))), iterating(outbox, got, uri="mine"):
        for number in range(10):
            await rig.put("mine" if number % 2 else "other", number)
        await eventually(lambda: got == [1, 3, 5, 7, 9])
