"""What `faststream-outbox` 0.19 was found to do wrong, each finding under its number: D13, D14, D15 and D17."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox.queue import DONE, RELEASE, Claim, ConstantRetry, Dead, Done, Outcome, Retry, Undecided
from tests.queue.rig import Rig
from tests.queue.witness import Witness
from tests.waiting import eventually

CLOSING = (events.Handled, events.Retried, events.Died, events.Released, events.LeaseWasLost, events.Abandoned)


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


async def test_d13_every_start_has_exactly_one_closing_event(rig: Rig) -> None:
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
                await rig.sql("update {t} set acquired_token = gen_random_uuid() where payload = 'lost'")
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


async def test_d14_starting_a_worker_twice_is_starting_it_once(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    def tasks() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("outbox")}

    worker = await rig.work(handle, max_workers=3)
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
async def test_d15_competing_claimers_do_not_fail_where_repeatable_read_is_the_default(
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


async def test_d17_a_message_that_kills_its_process_is_given_up(rig: Rig) -> None:
    """Each crash leaves a lease that ran out, a delivery more, and no attempt."""

    async def handle(claim: Claim) -> Done:
        return DONE

    await rig.put("killer", "harmless")
    await rig.sql(
        "update {t} set acquired_token = gen_random_uuid(), acquired_at = now() - interval '1 h',"
        " deliveries_count = case when payload = 'killer' then 100 else 99 end"
    )
    await rig.work(handle)
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled)
    (letter,) = await rig.dead()
    assert (died.reason, letter["failure_reason"], letter["payload"]) == ("crash_loop", "crash_loop", b"killer")
    assert (letter["attempts_count"], letter["deliveries_count"]) == (0, 101)
    assert len(rig.witness.of(events.Started)) == 1
