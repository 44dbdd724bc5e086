"""What `faststream-outbox` 0.19 was found to do wrong, each finding under its number: D1 to D6.

The numbers are those of the list of its defects; those that follow are in `test_findings_of_loops`.
"""

import asyncio
from typing import Any, NoReturn

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Done, NoRetry, Outcome
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually


async def cancelled_by_itself(claim: Claim) -> NoReturn:
    raise asyncio.CancelledError


async def cancelled_by_what_it_awaits(claim: Claim) -> Done:
    task = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task
    return DONE


async def cancelled_through_its_own_task(claim: Claim) -> Done:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return DONE


@pytest.mark.parametrize("poison", [cancelled_by_itself, cancelled_by_what_it_awaits, cancelled_through_its_own_task])
async def test_d01_a_handler_that_raises_cancelled_error_costs_nobody_else(rig: Rig, poison: object) -> None:
    async def handle(claim: Claim) -> Outcome:
        if claim.payload == b"poison":
            return await poison(claim)  # type: ignore[operator]  # One of the three above.
        return DONE

    await rig.work(handle, retry_strategy=NoRetry())
    await rig.put("poison", "a", "b")
    died = await rig.witness.wait(events.Died)
    await rig.witness.wait(events.Handled, count=2)
    assert (died.reason, type(died.error)) == ("retry_terminal", asyncio.CancelledError)


@pytest.mark.parametrize("answer", [None, True, "done", Done], ids=repr)
async def test_d01_a_handler_that_answers_no_outcome_costs_nobody_else(rig: Rig, answer: object) -> None:
    async def handle(claim: Claim) -> object:
        return answer if claim.payload == b"poison" else DONE

    await rig.work(handle, retry_strategy=NoRetry())
    await rig.put("poison", "a", "b")
    await rig.witness.wait(events.Handled, count=2)
    await rig.witness.wait(events.Died)


async def test_d01_a_hook_that_raises_cancelled_error_costs_nobody_else(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        if claim.payload == b"poison":
            raise ValueError
        return DONE

    await rig.work(handle, retry_strategy=NoRetry(), on_terminal_failure=cancelled_by_itself)
    await rig.put("poison", "a", "b")
    await rig.witness.wait(events.Handled, count=2)
    await rig.witness.wait(events.Died)


async def test_d02_a_dead_connection_does_not_make_finished_work_run_again(rig: Rig, named_engine: AsyncEngine) -> None:
    kill = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and application_name like '% under_test'"
    )

    killed = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await killed.wait()
        return DONE

    client = rig.another_client(engine=named_engine)
    await rig.work(handle, max_workers=4, lease_ttl_seconds=10.0, client=client, **POLLING)
    await rig.put(*"abcd")
    await rig.witness.wait(events.Started, count=4)
    assert await rig.one(kill) >= 2
    killed.set()
    await rig.witness.wait(events.Handled, count=4)
    await eventually(rig.is_empty)
    assert len(rig.witness.of(events.Started)) == 4


@pytest.mark.usefixtures("renewed_often")
async def test_d03_a_handler_longer_than_its_lease_runs_once(rig: Rig) -> None:
    finish = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await finish.wait()
        return DONE

    lease = {"lease_ttl_seconds": 60.0} | POLLING
    await rig.work(handle, **lease)
    await rig.put("a")
    await rig.witness.wait(events.Started)
    await rig.work(handle, client=rig.another_client(), **lease)
    for _ in range(2):
        # Together more than a lease; after the second renewal from here one began with this.
        await rig.sql("update {t} set acquired_at = acquired_at - interval '45 s'")
        await rig.witness.wait(events.LeasesRenewed, count=len(rig.witness.of(events.LeasesRenewed)) + 2)
    finish.set()
    await rig.witness.wait(events.Handled)
    assert (len(rig.witness.of(events.Started)), await rig.is_empty()) == (1, True)


@pytest.mark.slow
@pytest.mark.usefixtures("renewed_often")
async def test_d04_messages_that_wait_in_memory_keep_their_leases(rig: Rig) -> None:
    go_on = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"slow":
            await go_on.wait()
        return DONE

    async def are_renewed() -> bool:
        return bool(await rig.one("select bool_and(acquired_at > :then) from {t}", then=then))

    worker = await rig.work(handle, lease_ttl_seconds=60.0, max_deliveries=1, fetch_batch_size=10, **POLLING)
    await rig.put(*["quick"] * 50)
    await rig.witness.wait(events.Handled, count=50)
    await rig.put(*["slow"] * 10)
    await eventually(lambda: worker.waiting >= 5, message="messages wait in memory")
    await rig.work(handle, client=rig.another_client(), lease_ttl_seconds=60.0, max_deliveries=1, **POLLING)
    then = await rig.one("select max(acquired_at) from {t}")
    await eventually(are_renewed)
    go_on.set()
    await rig.witness.wait(events.Handled, count=60)
    assert (len(rig.witness.of(events.Started)), await rig.dead()) == (60, [])


async def test_d05_stop_gives_back_what_has_not_started_while_handlers_still_run(rig: Rig) -> None:
    finish = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"slow":
            await finish.wait()
        return DONE

    worker = await rig.work(handle, fetch_batch_size=10)
    await rig.put(*["quick"] * 50)
    await rig.witness.wait(events.Handled, count=50)
    await rig.put(*["slow"] * 10)
    await eventually(lambda: worker.waiting >= 5, message="messages wait in memory")
    stopping = asyncio.ensure_future(worker.stop(timeout=30))

    async def one_is_leased() -> bool:
        return await rig.leased() == 1

    await eventually(one_is_leased)
    assert not stopping.done()
    finish.set()
    await stopping
    assert (await rig.leased(), len(await rig.rows())) == (0, 9)


class RaisingRepr(Exception):
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no repr")


def raising_renderer(error: BaseException) -> NoReturn:
    raise KeyError("renderer")


@pytest.mark.parametrize(
    ("error", "renderer"),
    [
        (RaisingRepr("x"), None),
        (ValueError("nul \x00"), None),
        (ValueError("surrogate \udc80"), None),
        (ValueError("x" * 2_000_000), None),
        (ValueError("x"), raising_renderer),
    ],
    ids=["repr", "nul", "surrogate", "huge", "renderer"],
)
async def test_d06_no_error_makes_a_message_immortal(driver_rig: Rig, error: Exception, renderer: object) -> None:
    rig = driver_rig

    async def handle(claim: Claim) -> NoReturn:
        raise error

    client = rig.another_client(last_exception_renderer=renderer)
    await rig.work(handle, client=client, retry_strategy=NoRetry(), lease_ttl_seconds=10.0, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.Died)
    (letter,) = await rig.dead()
    assert (letter["attempts_count"], len(rig.witness.of(events.Started)), await rig.is_empty()) == (1, 1, True)


@pytest.mark.slow
async def test_d06_a_dead_letter_that_is_refused_parks_the_message(
    driver_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = driver_rig
    monkeypatch.setattr("faststream_outbox._internal.queue.pending.APART_SECONDS", 0.1)

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"a":
            raise ValueError("no such order")
        return DONE

    await rig.sql("alter table {d} add constraint none_at_all check (false)")
    await rig.work(handle, retry_strategy=NoRetry(), lease_ttl_seconds=10.0, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.OutcomeRefused)
    await rig.put("b")
    await rig.witness.wait(events.Handled)

    async def parked() -> Any:
        return await rig.sql("select attempts_count, headers from {t} where next_attempt_at = 'infinity'")

    (row,) = await eventually(parked)
    assert row["attempts_count"] == 1
    assert row["headers"]["x-outbox-failure"].startswith("retry_terminal; dead letter refused")
