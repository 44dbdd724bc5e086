"""A worker handles each message once, so many at a time, and starts and stops in any order."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.queue import DONE, RELEASE, Claim, Done, OutboxClient, Outcome, Worker
from tests.queue.rig import Rig
from tests.waiting import eventually


async def done(claim: Claim) -> Done:
    return DONE


class TestHandling:
    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_a_message_is_handled_and_deleted(self, driver_rig: Rig, key: str | None) -> None:
        await driver_rig.work(done)
        await driver_rig.put("a", key=key)
        await driver_rig.witness.wait(events.Handled)
        assert await driver_rig.is_empty()

    async def test_messages_that_were_there_before_are_handled(self, driver_rig: Rig) -> None:
        await driver_rig.put(*"abc")
        await driver_rig.work(done)
        await driver_rig.witness.wait(events.Handled, count=3)

    async def test_messages_without_key_come_in_the_order_of_publishing(self, rig: Rig) -> None:
        seen: list[bytes] = []

        async def handle(claim: Claim) -> Done:
            seen.append(claim.payload)
            return DONE

        await rig.put(*(f"{number:02}" for number in range(30)))
        await rig.work(handle)
        await rig.witness.wait(events.Handled, count=30)
        assert seen == sorted(seen)

    async def test_a_claim_shows_the_message(self, driver_rig: Rig) -> None:
        rig = driver_rig
        claims: list[Claim] = []

        async def handle(claim: Claim) -> Done:
            claims.append(claim)
            return DONE

        before = datetime.now(UTC) - timedelta(seconds=5)
        envelope = Envelope(
            queue="orders", body=b"\x00body", headers={"a": [1]}, key="k", priority=3, timer_id="t", message_id=uuid4()
        )
        (number,) = await rig.publish(envelope)
        await rig.work(handle)
        await rig.witness.wait(events.Handled)
        (claim,) = claims
        assert (claim.id, claim.queue, claim.payload, claim.headers) == (number, "orders", b"\x00body", {"a": [1]})
        assert (claim.key, claim.priority, claim.timer_id) == ("k", 3, "t")
        assert claim.message_id == envelope.message_id
        assert (claim.attempts_count, claim.deliveries_count) == (0, 1)
        assert (claim.first_attempt_at, claim.last_attempt_at) == (None, None)
        assert before < claim.created_at == claim.next_attempt_at <= claim.acquired_at

    async def test_headers_are_empty_where_there_are_none(self, driver_rig: Rig) -> None:
        claims: list[Claim] = []

        async def handle(claim: Claim) -> Done:
            claims.append(claim)
            return DONE

        await driver_rig.work(handle)
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Handled)
        assert claims[0].headers == {}

    async def test_messages_of_other_queues_are_left_alone(self, rig: Rig) -> None:
        await rig.put("a", queue="mails")
        await rig.work(done)
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert (await rig.row())["deliveries_count"] == 0

    async def test_a_released_message_comes_again_at_once(self, driver_rig: Rig) -> None:
        async def handle(claim: Claim) -> Outcome:
            return RELEASE if len(driver_rig.witness.of(events.Started)) < 3 else DONE

        await driver_rig.work(handle)
        await driver_rig.put("a")
        handled = await driver_rig.witness.wait(events.Handled)
        released = driver_rig.witness.of(events.Released)
        assert ([event.was_started for event in released], handled.deliveries_count) == ([True, True], 1)

    async def test_workers_without_a_client_share_one(self, rig: Rig) -> None:
        one, two = (Worker(rig.engine, rig.table, queue, done) for queue in "ab")
        assert one.client is two.client is OutboxClient.shared(rig.engine, rig.table)

    async def test_a_worker_without_a_client_works(self, rig: Rig) -> None:
        worker = Worker(rig.engine, rig.table, "orders", done)
        await worker.start()
        await rig.put("a")
        await eventually(rig.is_empty)
        await worker.stop()


class TestConcurrency:
    @pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
    @pytest.mark.parametrize("most", [1, 3, 8])
    async def test_never_more_handlers_run_than_max_workers(self, rig: Rig, most: int, keyed: bool) -> None:
        running, peak = 0, 0

        async def handle(claim: Claim) -> Done:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.002)
            running -= 1
            return DONE

        await rig.publish(
            *(Envelope(queue="orders", body=b"x", key=f"k{number}" if keyed else None) for number in range(100))
        )
        await rig.work(handle, max_workers=most, fetch_batch_size=20)
        await rig.witness.wait(events.Handled, count=100)
        assert peak == most

    async def test_a_slow_message_does_not_hold_up_the_others(self, rig: Rig) -> None:
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            if claim.payload == b"slow":
                await finish.wait()
            return DONE

        await rig.work(handle, max_workers=2)
        await rig.put("slow", *["quick"] * 50)
        await rig.witness.wait(events.Handled, count=50)
        finish.set()
        await rig.witness.wait(events.Handled, count=51)

    async def test_two_workers_of_one_queue_in_one_client_share_the_work(self, rig: Rig) -> None:
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            await finish.wait()
            return DONE

        await rig.put(*["x"] * 10)
        for name in ("one", "two"):
            await rig.work(handle, name=name, max_workers=2)
        started = [await rig.witness.wait(events.Started, count=count) for count in (1, 2, 3, 4)]
        finish.set()
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
    async def test_stop_before_start_does_nothing(self, rig: Rig) -> None:
        worker = rig.worker(done)
        await worker.stop()
        await worker.start()
        await rig.put("a")
        await rig.witness.wait(events.Handled)

    async def test_stop_twice_is_once(self, rig: Rig) -> None:
        worker = await rig.work(done)
        await asyncio.gather(worker.stop(), worker.stop())
        await worker.stop()
        assert not worker.is_running

    async def test_a_stopped_worker_claims_nothing(self, rig: Rig) -> None:
        worker = await rig.work(done)
        await worker.stop()
        await rig.put("a")
        await rig.work(done, "other")
        await rig.put("b", queue="other")
        await rig.witness.wait(events.Handled)
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

    async def test_is_running_says_so(self, rig: Rig) -> None:
        worker = rig.worker(done)
        states = [worker.is_running]
        await worker.start()
        states.append(worker.is_running)
        await worker.stop()
        states.append(worker.is_running)
        assert states == [False, True, False]
