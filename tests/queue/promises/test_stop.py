"""Stop: what runs finishes, what has not started is given back at once, nothing is left leased."""

import asyncio
import subprocess
import sys

import pytest
from sqlalchemy import URL

from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.queue import DONE, Claim, Done, Worker
from tests.queue.rig import QUIET_SECONDS, Gate, Rig
from tests.waiting import eventually


async def stopped(worker: Worker, gate: Gate) -> None:
    """Stop it, and let its handlers end once it has begun to."""
    stopping = asyncio.ensure_future(worker.stop(timeout=30))
    await asyncio.sleep(0)
    gate.open.set()
    await stopping


class TestGraceful:
    async def test_what_runs_finishes(self, rig: Rig) -> None:
        gate = Gate()
        worker = await rig.work(gate, max_workers=3)
        numbers = await rig.put(*"abc")
        await rig.witness.wait(events.Started, count=3)
        await stopped(worker, gate)
        assert (sorted(gate.finished), await rig.is_empty()) == (numbers, True)

    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_what_has_not_started_keeps_its_number_of_deliveries(self, rig: Rig, key: str | None) -> None:
        gate = Gate()
        worker = await rig.filled(gate, key=key)
        await stopped(worker, gate)
        rows = await rig.rows()
        assert {(row["deliveries_count"], row["acquired_token"]) for row in rows} == {(0, None)}
        assert len(rows) + len(gate.finished) - 50 == 8

    @pytest.mark.slow
    async def test_what_has_not_started_is_handled_by_another_client_at_once(self, rig: Rig) -> None:
        gate, other = Gate(), Gate()
        worker = await rig.filled(gate)
        other.open.set()
        await rig.work(other, client=rig.another_client(), max_workers=10)
        await rig.witness.wait(events.ListenerReady, count=2)
        await asyncio.sleep(QUIET_SECONDS)
        stopping = asyncio.ensure_future(worker.stop(timeout=30))
        await eventually(lambda: len(other.finished) == 7)
        assert not stopping.done()
        gate.open.set()
        await stopping

    async def test_what_runs_too_long_is_cancelled_and_given_back(self, rig: Rig) -> None:
        worker = await rig.work(Gate())
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await worker.stop(timeout=0.05)
        row = await rig.row()
        assert (row["acquired_token"], row["deliveries_count"], row["attempts_count"]) == (None, 1, 0)
        assert rig.witness.of(events.DrainTimedOut)[0].running == 1

    async def test_graceful_timeout_is_the_default(self, rig: Rig) -> None:
        worker = await rig.work(Gate(), graceful_timeout=0.05)
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await worker.stop()
        assert len(rig.witness.of(events.DrainTimedOut)) == 1

    async def test_an_idle_worker_stops_at_once(self, rig: Rig) -> None:
        worker = await rig.work(Gate(), max_workers=20)
        async with asyncio.timeout(30):
            await worker.stop(timeout=60)

    async def test_a_batch_that_waits_for_more_is_given_back(self, rig: Rig) -> None:
        async def handle(claims: list[Claim]) -> list[Done]:
            return [DONE] * len(claims)

        worker = await rig.work(handle, batch=True, batch_size=10, batch_wait=60.0)
        await rig.put("a", "b")
        await eventually(lambda: len(worker.unsettled) == 2 and not worker.waiting, message="the batch is begun")
        async with asyncio.timeout(30):
            await worker.stop(timeout=60)
        left = [(row["deliveries_count"], row["acquired_token"]) for row in await rig.rows()]
        assert left in ([(0, None)] * 2, []), "neither given back nor handled"


class TestFromInside:
    async def test_a_handler_may_stop_its_own_worker(self, rig: Rig) -> None:
        finished: list[int] = []

        async def handle(claim: Claim) -> Done:
            await worker.stop()
            finished.append(claim.id)
            return DONE

        worker = rig.worker(handle)
        await rig.put("a", "b", "c")
        await worker.start()
        await eventually(lambda: not worker.is_running and not worker.running)
        await worker.stop()
        assert (len(finished), await rig.leased(), len(await rig.rows())) == (1, 0, 2)

    async def test_a_handler_may_stop_another_worker(self, rig: Rig) -> None:
        other = await rig.work(Gate(), "mails")

        async def handle(claim: Claim) -> Done:
            await other.stop()
            return DONE

        await rig.ended(events.Handled, handle, "a")
        assert not other.is_running


class TestManyWorkers:
    async def test_one_that_stops_leaves_the_others_working(self, rig: Rig) -> None:
        one = await rig.work(Gate(), "mails")
        await rig.work(Gate(), "orders")
        await one.stop()
        await rig.put("quick")
        await rig.witness.wait(events.Handled, queue="orders")

    async def test_stopping_all_at_once_leaves_nothing_leased(self, rig: Rig) -> None:
        gate = Gate()
        await rig.publish(*(Envelope(queue=f"q{number % 5}", body=b"slow") for number in range(100)))
        workers = [await rig.work(gate, f"q{number}", max_workers=3) for number in range(5)]
        await rig.witness.wait(events.Started, count=15)
        await asyncio.gather(*(worker.stop(timeout=0) for worker in workers))
        assert (await rig.leased(), len(await rig.rows())) == (0, 100)


PROGRAM = """
import asyncio
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine
from faststream_outbox.queue import DONE, Worker
from faststream_outbox.schema import make_outbox_table

async def main():
    engine = create_async_engine({url!r})
    started = asyncio.Event()

    async def handle(claim):
        started.set()
        {handle}
        return DONE

    await Worker(engine, make_outbox_table(MetaData()), "orders", handle, max_workers=2).start()
    await started.wait()
    {rest}

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handle", "rest", "said"),
    [
        # `asyncio.run` cancels every task once, and waits until they have ended.
        ("await asyncio.sleep(3600)", "print('started')", b"started\n"),
        # Whoever presses Ctrl-C while a handler computes does not mean the message.
        ("raise KeyboardInterrupt", "await asyncio.sleep(3600)", b"interrupted\n"),
    ],
    ids=["it forgets to stop", "it is interrupted from the keyboard"],
)
async def test_a_program_ends_and_counts_no_attempt(
    rig: Rig, database_url: URL, handle: str, rest: str, said: bytes
) -> None:
    await rig.put("a")
    program = PROGRAM.format(url=database_url.render_as_string(hide_password=False), handle=handle, rest=rest)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(50):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        pytest.fail("the program still runs 50 s later")
    assert (output, process.returncode, (await rig.row())["attempts_count"]) == (said, 0, 0)
