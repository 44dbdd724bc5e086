"""A worker handles each message once, so many at a time, and starts and stops in any order."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.queue import DONE, RELEASE, Claim, Done, OutboxClient, Worker
from tests.queue.rig import Gate, Rig, Seen, done
from tests.waiting import eventually


class TestHandling:
    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_a_message_is_handled_and_deleted(self, driver_rig: Rig, key: str | None) -> None:
        await driver_rig.ended(events.Handled, done, "a", key=key)
        assert await driver_rig.is_empty()

    async def test_messages_that_were_there_before_come_in_the_order_of_publishing(self, driver_rig: Rig) -> None:
        handle = Seen()
        await driver_rig.put(*(f"{number:02}" for number in range(30)))
        await driver_rig.work(handle)
        await driver_rig.witness.wait(events.Handled, count=30)
        assert handle.bodies == [f"{number:02}" for number in range(30)]

    async def test_a_claim_shows_the_message(self, driver_rig: Rig) -> None:
        handle = Seen()
        before = datetime.now(UTC) - timedelta(seconds=5)
        fields: dict[str, Any] = {"queue": "orders", "headers": {"a": [1]}, "key": "k", "priority": 3, "timer_id": "t"}
        fields["message_id"] = uuid4()
        (number,) = await driver_rig.publish(Envelope(body=b"\x00body", **fields))
        await driver_rig.ended(events.Handled, handle, "bare")
        await driver_rig.witness.wait(events.Handled, count=2)
        claim, bare = sorted(handle.claims, key=lambda claim: claim.id)
        expected = fields | {"id": number, "payload": b"\x00body", "attempts_count": 0, "deliveries_count": 1}
        expected |= {"first_attempt_at": None, "last_attempt_at": None}
        assert {name: getattr(claim, name) for name in expected} == expected
        assert before < claim.created_at == claim.next_attempt_at <= claim.acquired_at
        assert bare.headers == {}

    async def test_messages_of_other_queues_are_left_alone(self, rig: Rig) -> None:
        await rig.put("a", queue="mails")
        await rig.ended(events.Handled, done, "b")
        assert (await rig.row())["deliveries_count"] == 0

    async def test_a_released_message_comes_again_at_once(self, driver_rig: Rig) -> None:
        handle = Seen(lambda claim: RELEASE if len(driver_rig.witness.of(events.Started)) < 3 else DONE)
        handled = await driver_rig.ended(events.Handled, handle, "a")
        released = driver_rig.witness.of(events.Released)
        assert ([event.was_started for event in released], handled.deliveries_count) == ([True, True], 1)

    async def test_workers_without_a_client_share_one_and_work(self, rig: Rig) -> None:
        worker, other = (Worker(rig.engine, rig.table, queue, done) for queue in ("orders", "mails"))
        assert worker.client is other.client is OutboxClient.shared(rig.engine, rig.table)
        await worker.start()
        await rig.put("a")
        await eventually(rig.is_empty)
        await worker.stop()


class TestConcurrency:
    @pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
    @pytest.mark.parametrize("most", [1, 3, 8])
    async def test_never_more_handlers_run_than_max_workers(self, rig: Rig, most: int, key: str | None) -> None:
        running, peak = 0, 0

        async def handle(claim: Claim) -> Done:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.002)
            running -= 1
            return DONE

        await rig.publish(*(Envelope(queue="orders", body=b"x", key=key and f"{key}{n}") for n in range(100)))
        await rig.work(handle, max_workers=most, fetch_batch_size=20)
        await rig.witness.wait(events.Handled, count=100)
        assert peak == most

    async def test_a_slow_message_does_not_hold_up_the_others(self, rig: Rig) -> None:
        gate = Gate()
        await rig.work(gate, max_workers=2)
        await rig.put("slow", *["quick"] * 50)
        await rig.witness.wait(events.Handled, count=50)
        gate.open.set()
        await rig.witness.wait(events.Handled, count=51)

    async def test_two_workers_of_one_queue_in_one_client_share_the_work(self, rig: Rig) -> None:
        gate = Gate()
        await rig.put(*["x"] * 10)
        for name in ("one", "two"):
            await rig.work(gate, name=name, max_workers=2)
        started = [await rig.witness.wait(events.Started, count=count) for count in (1, 2, 3, 4)]
        gate.open.set()
        await rig.witness.wait(events.Handled, count=10)
        assert sorted(event.worker for event in started) == ["one", "one", "two", "two"]

    async def test_two_clients_never_handle_a_message_twice(self, rig: Rig) -> None:
        await rig.sql("insert into {t} (queue, payload) select 'orders', '' from generate_series(1, 2000)")
        for client in (rig.client, rig.another_client()):
            await rig.work(done, client=client, max_workers=4, fetch_batch_size=20)
        await rig.witness.wait(events.Handled, count=2000)
        started = [event.id for event in rig.witness.of(events.Started)]
        assert (len(started), len(set(started)), await rig.is_empty()) == (2000, 2000, True)


class TestStartAndStop:
    async def test_stop_before_start_and_stop_twice_do_nothing_and_is_running_says_so(self, rig: Rig) -> None:
        worker = rig.worker(done)
        await worker.stop()
        states = [worker.is_running]
        await worker.start()
        states.append(worker.is_running)
        await rig.put("a")
        await rig.witness.wait(events.Handled)
        await asyncio.gather(worker.stop(), worker.stop())
        await worker.stop()
        assert [*states, worker.is_running] == [False, True, False]

    async def test_a_stopped_worker_claims_nothing(self, rig: Rig) -> None:
        worker = await rig.work(done)
        await worker.stop()
        await rig.put("a")
        await rig.ended(events.Handled, done, "b", queue="other")
        assert (await rig.row())["deliveries_count"] == 0

    async def test_it_can_be_started_again(self, rig: Rig) -> None:
        worker = await rig.work(done)
        for count in (1, 2, 3):
            await rig.put("a")
            await rig.witness.wait(events.Handled, count=count)
            await worker.stop()
            await worker.start()

    async def test_a_start_during_a_stop_counts(self, rig: Rig) -> None:
        worker = await rig.work(done)
        stopping = asyncio.ensure_future(worker.stop())
        await asyncio.sleep(0)
        await worker.start()
        await stopping
        await rig.put("a")
        await rig.witness.wait(events.Handled)

    @pytest.mark.parametrize("turns", [6, 9, 15, 21, 30, 60, 90])
    async def test_a_worker_that_starts_while_the_last_one_stops_works(self, rig: Rig, turns: int) -> None:
        first = await rig.work(done, "mails")
        await rig.put("a", queue="mails")
        await rig.witness.wait(events.Handled)
        stopping = asyncio.ensure_future(first.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        await rig.work(done)
        await stopping
        await rig.put("b")
        await rig.witness.wait(events.Handled, count=2)
        assert rig.client.is_healthy, "a loop that the new worker needs has ended with the old one"
