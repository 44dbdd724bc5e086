"""Whatever becomes of a message, both recorders count it as that, and the gauge of running handlers returns to zero."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.queue import DONE, Claim, Dead, Done, Outcome, Retry
from tests.metrics.readings import Reading
from tests.queue.rig import Rig
from tests.waiting import eventually

STEAL = "update {t} set acquired_token = gen_random_uuid()"


def outbox_only(reading: Reading) -> dict[str, float]:
    """What was counted apart from claims and the listener, which every path has."""
    ignored = {"fetch_batches", "listener_up", "delivery_seconds", "deliveries_per_message"}
    return {name: value for name, value in reading.all_own().items() if name not in ignored}


def ending(*outcomes: Outcome | BaseException) -> Callable[[Claim], Any]:
    """A handler that ends so, one time after the other."""
    left = iter(outcomes)

    async def handle(claim: Claim) -> Outcome:
        outcome = next(left)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return handle


async def test_done(rig: Rig, reading: Reading) -> None:
    inside: list[float] = []

    async def handle(claim: Claim) -> Done:
        inside.append(reading.running())
        return DONE

    await rig.work(handle)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    assert (inside, reading.running(), reading.timed()) == ([1], 0, 1)
    assert reading.own("fetch_batches", non_empty="true") == 1
    assert outbox_only(reading) == {}


@pytest.mark.parametrize("failure", [ValueError("not yet"), asyncio.CancelledError()], ids=["error", "cancelled"])
async def test_retry(rig: Rig, reading: Reading, failure: BaseException) -> None:
    await rig.work(ending(failure, DONE), retry_strategy=ConstantRetry(delay_seconds=0.01))
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    assert (reading.running(), reading.timed()) == (0, 2)
    assert outbox_only(reading) == {}


async def test_dead_letter(rig: Rig, reading: Reading) -> None:
    await rig.work(ending(ValueError("never")), retry_strategy=NoRetry())
    await rig.put("a")
    await rig.witness.wait(events.Died)
    assert (reading.running(), reading.timed()) == (0, 1)
    assert outbox_only(reading) == {"terminal": 1, "dlq_written": 1}
    assert [reading.own(name, reason="retry_terminal") for name in ("terminal", "dlq_written")] == [1, 1]


async def test_failed_for_good_where_nothing_keeps_dead_letters(rig: Rig, reading: Reading) -> None:
    client = rig.another_client(dead_letters=False)
    reading.listen(client.events)
    await rig.work(ending(Dead()), client=client)
    await rig.put("a", client=client)
    await rig.witness.wait(events.Died)
    assert reading.running() == 0
    assert outbox_only(reading) == {"terminal": 1}


async def test_delivered_too_often_and_never_started(rig: Rig, reading: Reading) -> None:
    await rig.put("a")
    await rig.sql("update {t} set deliveries_count = 5")
    await rig.work(ending(), max_deliveries=2)
    await rig.witness.wait(events.Died)
    assert (reading.running(), reading.timed()) == (0, 0)
    assert reading.own("terminal", reason="max_deliveries") == 1


async def test_cancelled_by_a_stop(rig: Rig, reading: Reading) -> None:
    async def handle(claim: Claim) -> Done:
        await asyncio.Event().wait()
        return DONE

    worker = await rig.work(handle)
    await rig.put("a")
    await rig.witness.wait(events.Started)
    assert reading.running() == 1
    await worker.stop(timeout=0)
    assert (reading.running(), reading.timed()) == (0, 0)
    assert outbox_only(reading) == {"dispatch_abandoned": 1, "released": 1, "drain_timeout": 1}
    assert reading.own("released", started="true") == 1


async def test_given_back_before_it_started(rig: Rig, reading: Reading) -> None:
    ready = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        if claim.payload != b"quick":
            await ready.wait()
        return DONE

    # a worker whose handlers are quick claims more than it runs
    worker = await rig.work(handle)
    await rig.put(*["quick"] * 50)
    await rig.witness.wait(events.Handled, 50)
    await rig.put(*["slow"] * 10)
    await eventually(lambda: worker.waiting >= 5)
    stopping = asyncio.ensure_future(worker.stop(timeout=30))
    await eventually(lambda: worker.is_stopping)
    ready.set()
    await stopping
    released = len(rig.witness.of(events.Released))
    assert released >= 5
    assert (reading.running(), reading.timed()) == (0, len(rig.witness.of(events.Handled)))
    assert outbox_only(reading) == {"released": released}
    assert reading.own("released", started="false") == released


@pytest.mark.usefixtures("renewed_often")
async def test_lease_lost_while_running(rig: Rig, reading: Reading) -> None:
    ready = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await rig.sql(STEAL)
        await ready.wait()
        return DONE

    worker = await rig.work(handle, lease_ttl_seconds=60.0)
    await rig.put("a")
    await rig.witness.wait(events.LeaseWasLost, phase="running")
    assert reading.running() == 0
    ready.set()
    await eventually(lambda: not worker.unsettled)
    assert (reading.running(), reading.own("lease_lost", phase="running")) == (0, 1)


async def test_lease_lost_when_settling(rig: Rig, reading: Reading) -> None:
    async def handle(claim: Claim) -> Done:
        await rig.sql(STEAL)
        return DONE

    await rig.work(handle)
    await rig.put("a")
    await rig.witness.wait(events.LeaseWasLost, phase="settling")
    assert (reading.running(), reading.timed(), reading.own("lease_lost", phase="settling")) == (0, 0, 1)


async def test_batch_of_different_outcomes(rig: Rig, reading: Reading) -> None:
    inside: list[float] = []

    async def handle(claims: Sequence[Claim]) -> list[Outcome]:
        inside.append(reading.running())
        return [DONE, Retry(3600.0), Dead()]

    await rig.work(handle, batch=True, batch_size=3, batch_wait=5.0)
    await rig.put("a", "b", "c")
    for kind in (events.Handled, events.Retried, events.Died):
        await rig.witness.wait(kind)
    assert (inside, reading.running(), reading.timed()) == ([3], 0, 3)
    assert reading.own("terminal", reason="rejected") == 1


async def test_left_to_its_lease_when_the_outcome_cannot_be_written(rig: Rig, reading: Reading) -> None:
    async with rig.engine.connect() as other:

        async def handle(claim: Claim) -> Done:
            await other.execute(text(f"select from {rig.table.name} for update"))
            return DONE

        worker = await rig.work(handle)
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await eventually(lambda: not worker.running)
        await worker.stop(timeout=0)
        await other.rollback()
    assert (reading.running(), reading.timed()) == (0, 0)
    assert outbox_only(reading) == {"dispatch_abandoned": 1, "abandoned": 1}


async def test_connections_that_are_cut(rig: Rig, reading: Reading, database_url: URL) -> None:
    named = {"application_name": "to be cut"}
    engine = create_async_engine(database_url, connect_args={"server_settings": named})
    client = rig.another_client(engine=engine)
    reading.listen(client.events)
    worker = await rig.work(ending(DONE), client=client)
    await rig.witness.wait(events.ListenerReady)
    assert reading.own("listener_up") == 1
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like '% to be cut'"
    await rig.sql(f"{cut} and datname = current_database()")
    await rig.witness.wait(events.ListenerLost)
    await rig.witness.wait(events.ListenerReady, 2)
    await rig.put("a", client=client)
    await rig.witness.wait(events.Handled)
    await worker.stop()
    await engine.dispose()
    assert (reading.running(), reading.own("listener_up")) == (0, 1)
    assert reading.own("listener_lost", reason="lost") == len(rig.witness.of(events.ListenerLost))
    lost = Counter(event.role for event in rig.witness.of(events.StatementFailed))
    assert {role: reading.own("connection_lost", role=role) for role in lost} == lost
    assert reading.own("connection_lost") == lost.total()
    assert reading.own("connection_outage_seconds") == len(rig.witness.of(events.StatementWorks))
