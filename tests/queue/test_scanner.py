"""Scans run beside the claims: however slow they are and however often they fail, claiming goes on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue.plan import MOST_STRAYS
from faststream_outbox._internal.service import pause_after
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, RELEASE, Claim, Done, OutboxClient, Outcome
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually

SCANS = ("survey", "claimable_keys", "walk_keys", "next_due", "claimable")


async def handle(claim: Claim) -> Done:
    return DONE


class Trouble:
    """Statements of these names fail, or never end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing: tuple[str, ...] = ()
        self.hanging: tuple[str, ...] = ()
        self.times: dict[str, list[float]] = {}
        fetch = DedicatedConnection.fetch

        async def troubled(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
            self.times.setdefault(statement.name, []).append(asyncio.get_running_loop().time())
            if statement.name in self.hanging:
                await asyncio.Event().wait()
            if statement.name in self.failing:
                msg = "canceling statement due to statement timeout"
                raise TimeoutError(msg)
            return await fetch(connection, statement, values)

        monkeypatch.setattr(DedicatedConnection, "fetch", troubled)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(monkeypatch)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("way", ["failing", "hanging"])
async def test_claiming_goes_on_while_scans_do_not_come_back(rig: Rig, trouble: Trouble, name: str, way: str) -> None:
    setattr(trouble, way, (name,))
    await rig.work(handle, **POLLING)
    for number in range(5):
        await rig.put(str(number))
        await rig.put(str(number), key="k")
        await rig.witness.wait(events.Handled, count=2 * number + 2)


@pytest.mark.slow
async def test_a_failing_scan_is_told_once_and_tried_again_after_growing_pauses(rig: Rig, trouble: Trouble) -> None:
    trouble.failing = ("survey",)
    await rig.work(handle, **POLLING)
    await eventually(lambda: len(trouble.times.get("survey", ())) >= 6, timeout=20)
    first, *_, last = trouble.times["survey"][:6]
    assert last - first >= sum(pause_after(failures, 0.0) for failures in range(1, 6))
    assert [event.role for event in rig.witness.of(events.StatementFailed)] == ["scan"]


@pytest.mark.slow
async def test_a_scan_that_works_does_not_hide_that_claims_fail(rig: Rig, trouble: Trouble) -> None:
    trouble.failing = ("claim",)
    await rig.work(handle, **POLLING)
    await eventually(lambda: len(trouble.times.get("claim", ())) >= 6, timeout=20)
    first, *_, last = trouble.times["claim"][:6]
    assert last - first >= sum(pause_after(failures, 0.0) for failures in range(1, 6))
    assert [event.role for event in rig.witness.of(events.StatementFailed)] == ["claim"]
    trouble.failing = ()
    await rig.put("a")
    await rig.witness.wait(events.StatementWorks, role="claim")
    await rig.witness.wait(events.Handled)


async def test_claims_without_keys_do_not_wait_for_claims_of_keys_that_fail(rig: Rig, trouble: Trouble) -> None:
    trouble.failing = ("claim_keys", "find_keys")
    await rig.work(handle)
    await rig.put("a", key="k")
    await eventually(lambda: "claim_keys" in trouble.times or "find_keys" in trouble.times)
    await rig.put("b")
    await rig.witness.wait(events.Handled)


async def test_scans_and_claims_have_different_connections(rig: Rig, database_url: URL) -> None:
    """A scan that the server is busy with holds up no claim."""
    engine = create_async_engine(database_url)
    client = OutboxClient(engine, rig.table, log=None)
    client.events.subscribe(rig.witness)
    await rig.put("a")
    await rig.work(handle, client=client)
    await rig.witness.wait(events.Handled)
    async with client._scan_connection._lock:
        await rig.put("b", client=client)
        await rig.witness.wait(events.Handled, count=2)
    await rig.close()
    await engine.dispose()


async def test_what_lies_below_the_floor_is_found(rig: Rig) -> None:
    await rig.work(handle, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    await rig.sql("insert into {t} (queue, payload, next_attempt_at) values ('orders', 'b', now() - interval '1 h')")
    await rig.witness.wait(events.Handled, count=2)


async def test_very_much_below_the_floor_is_found_in_due_order(rig: Rig) -> None:
    seen: list[bytes] = []

    async def note(claim: Claim) -> Done:
        seen.append(claim.payload)
        return DONE

    await rig.work(note, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    many = 3 * MOST_STRAYS
    await rig.sql(
        "insert into {t} (queue, payload, next_attempt_at)"
        f" select 'orders', convert_to(n::text, 'UTF8'), now() - interval '1 h' + n * interval '1 s'"
        f" from generate_series(1, {many}) n"
    )
    await eventually(rig.is_empty, timeout=30)
    assert [int(body) for body in seen[1:]] == list(range(1, many + 1))


async def test_what_is_released_comes_again_at_once(rig: Rig) -> None:
    async def release_once(claim: Claim) -> Outcome:
        return RELEASE if len(rig.witness.of(events.Started)) == 1 else DONE

    await rig.work(release_once)
    await rig.put("a")
    await rig.witness.wait(events.Handled)


async def test_one_look_serves_all_who_would_look_soon(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    fetch = DedicatedConnection.fetch

    async def noted(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name == "survey":
            asked.append(sorted(values["queues"]))
        return await fetch(connection, statement, values)

    monkeypatch.setattr(DedicatedConnection, "fetch", noted)
    client = rig.another_client(watch=False, listen=False)
    queues = [f"q{number}" for number in range(20)]
    workers = [await rig.work(handle, queue, client=client) for queue in queues]
    plans = [client.plans.open()[worker] for worker in workers]
    await eventually(lambda: all(plan.earliest_scan for plan in plans))
    now = asyncio.get_running_loop().time()
    asked.clear()
    for number, plan in enumerate(plans):
        # The last one has just looked, and will not for long.
        plan.earliest_scan, plan.scan_at = 0.0, now + (number * 10 if number < 19 else 3600)
    client.plans.work.set()
    await eventually(lambda: asked)
    await eventually(lambda: all(plan.scan_at > now + 2000 for plan in plans))
    assert asked == [sorted(queues[:-1])]


async def test_nothing_that_scans_runs_on_the_connection_of_claims(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: set[tuple[DedicatedConnection, str]] = set()
    fetch = DedicatedConnection.fetch

    async def recorded(connection: DedicatedConnection, statement: Statement, values: Any) -> Any:
        sent.add((connection, statement.name))
        return await fetch(connection, statement, values)

    monkeypatch.setattr(DedicatedConnection, "fetch", recorded)

    await rig.publish(*(Envelope(queue="orders", body=b"1", key=f"k{n % 5}") for n in range(100)))
    go_on = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        await go_on.wait()
        return DONE

    await rig.work(handle, **POLLING)
    await eventually(lambda: {"survey", "drawn_ids"} <= {name for _, name in sent})
    await eventually(lambda: {"claimable_keys", "walk_keys"} & {name for _, name in sent})
    go_on.set()
    await rig.witness.wait(events.Handled, count=100)
    claiming = {connection for connection, name in sent if name == "claim_keys"}
    assert {name for connection, name in sent if connection in claiming} <= {
        "claim",
        "claim_keys",
        "find_keys",
        "overtaken",
    }
