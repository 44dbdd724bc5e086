"""What `faststream-outbox` 0.19 was found to do wrong: leases, connections, isolation, and what ends an attempt."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox.queue import DONE, RELEASE, Claim, ConstantRetry, Dead, Done, Outcome, Retry, Undecided
from tests.queue.rig import POLLING, Gate, Rig, done
from tests.queue.witness import Witness
from tests.waiting import eventually

CLOSING = (events.Handled, events.Retried, events.Died, events.Released, events.LeaseWasLost, events.Abandoned)
KILL = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
    " where datname = current_database() and application_name like '% under_test'"
)


async def test_a_dead_connection_does_not_make_finished_work_run_again(rig: Rig, named_engine: AsyncEngine) -> None:
    gate = Gate()
    client = rig.another_client(engine=named_engine)
    await rig.work(gate, max_workers=4, lease_ttl_seconds=10.0, client=client, **POLLING)
    await rig.put(*"abcd")
    await rig.witness.wait(events.Started, count=4)
    assert await rig.one(KILL) >= 2
    gate.open.set()
    await rig.witness.wait(events.Handled, count=4)
    await eventually(rig.is_empty)
    assert len(rig.witness.of(events.Started)) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("renewed_often")
async def test_what_runs_and_what_waits_in_memory_keep_their_leases(rig: Rig) -> None:
    gate = Gate()
    options = {"lease_ttl_seconds": 60.0, "max_deliveries": 1} | POLLING
    await rig.filled(gate, **options)
    await rig.work(gate, client=rig.another_client(), **options)
    for _ in range(2):
        # Together more than a lease; after the second renewal from here one began with this.
        await rig.sql("update {t} set acquired_at = acquired_at - interval '45 s'")
        renewed = len(rig.witness.of(events.LeasesRenewed))
        await rig.witness.wait(events.LeasesRenewed, count=renewed + 2)
    gate.open.set()
    await rig.witness.wait(events.Handled, count=58)
    assert (len(rig.witness.of(events.Started)), await rig.dead(), await rig.is_empty()) == (58, [], True)


def unclosed(witness: Witness) -> Counter[tuple[int, int]]:
    """Starts without a closing event count above zero, closing events too many below."""
    balance: Counter[tuple[int, int]] = Counter()
    started = witness.of(events.Started)
    balance.update((event.id, event.deliveries_count) for event in started)
    balance.subtract(
        (event.id, event.deliveries_count)
        for event in witness.of(*CLOSING)
        if (event.id, event.deliveries_count) in {(start.id, start.deliveries_count) for start in started}
    )
    return Counter({name: count for name, count in balance.items() if count})


async def test_every_start_has_exactly_one_closing_event(rig: Rig) -> None:
    """Done, failed, dead, released, undecided, cancelled by itself, lost, and cancelled at the end."""
    tried: set[bytes] = set()

    async def handle(claim: Claim) -> Outcome:
        if claim.payload in tried:
            return DONE
        tried.add(claim.payload)
        match claim.payload:
            case b"raises":
                raise ValueError
            case b"cancelled":
                raise asyncio.CancelledError
            case b"hangs":
                await asyncio.Event().wait()
            case b"lost":
                await rig.lease("payload = 'lost'")
        answers = {b"retry": Retry(0.01), b"dead": Dead(), b"release": RELEASE, b"undecided": Undecided()}
        return answers.get(claim.payload, DONE)

    bodies = ["done", "retry", "dead", "release", "undecided", "raises", "cancelled", "lost", "hangs"]
    strategy = ConstantRetry(delay_seconds=0.01)
    worker = await rig.work(handle, max_workers=len(bodies), retry_strategy=strategy)
    await rig.put(*bodies)
    await rig.witness.wait(events.Handled, count=len(bodies) - 3)
    await rig.witness.wait(events.LeaseWasLost)
    await worker.stop(timeout=0.1)
    await rig.witness.wait(events.DrainTimedOut)
    assert (unclosed(rig.witness), len(rig.witness.of(events.Released))) == (Counter(), 2)


async def test_starting_a_worker_twice_is_starting_it_once(rig: Rig) -> None:
    def tasks() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("outbox")}

    worker = await rig.work(done, max_workers=3)
    before = sorted(tasks())
    await asyncio.gather(worker.start(), worker.start())
    await worker.start()
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    assert (sorted(tasks()), len(rig.witness.of(events.Started))) == (before, 1)


def repeatable_read(database_url: URL, driver: str) -> AsyncEngine:
    """An engine whose transactions are REPEATABLE READ unless they say otherwise, as a database may have it."""
    url = database_url.set(drivername=f"postgresql+{driver}")
    level = "default_transaction_isolation"
    if driver == "asyncpg":
        return create_async_engine(url, connect_args={"server_settings": {level: "repeatable read"}})
    return create_async_engine(url, connect_args={"options": f"-c {level}=repeatable\\ read"})


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_competing_claimers_do_not_fail_where_repeatable_read_is_the_default(
    rig: Rig, database_url: URL, driver: str
) -> None:
    engine = repeatable_read(database_url, driver)

    async def handle(claim: Claim) -> Done:
        await asyncio.sleep(0)
        return DONE

    await rig.sql("insert into {t} (queue, payload) select 'orders', '' from generate_series(1, 1000)")
    await rig.sql("insert into {t} (queue, payload, key) select 'orders', '', i % 9 from generate_series(1, 500) i")
    for _ in range(4):
        await rig.work(handle, client=rig.another_client(engine=engine), max_workers=4)
    await eventually(rig.is_empty)
    await rig.close()
    await engine.dispose()
    assert rig.witness.of(events.LoopCrashed, events.LeaseWasLost) == []
    assert not any("serialize" in str(lost.error) for lost in rig.witness.of(events.StatementFailed))
    assert len(rig.witness.of(events.Started)) == 1500


async def test_a_message_that_kills_its_process_is_given_up(rig: Rig) -> None:
    """Each crash leaves a lease that ran out, a delivery more, and no attempt."""
    await rig.put("killer", "harmless")
    await rig.sql("update {t} set deliveries_count = case when payload = 'killer' then 100 else 99 end")
    await rig.lease(ago="1 h")
    await rig.work(done)
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled)
    (letter,) = await rig.dead()
    assert (died.reason, letter["failure_reason"], letter["payload"]) == ("crash_loop", "crash_loop", b"killer")
    assert (letter["attempts_count"], letter["deliveries_count"]) == (0, 101)
    assert len(rig.witness.of(events.Started)) == 1
