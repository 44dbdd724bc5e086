"""Scans run beside the claims: however slow they are and however often they fail, claiming goes on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue.plan import MOST_STRAYS
from faststream_outbox._internal.service import pause_after
from faststream_outbox._internal.sql.statements import Statement
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, Gate, Rig, Seen, done
from tests.waiting import eventually

SCANS = ("survey", "claimable_keys", "walk_keys", "next_due", "claimable")


class Trouble:
    """Statements of these names fail, or never end."""

    def __init__(self, intercept: Intercept) -> None:
        self.failing: tuple[str, ...] = ()
        self.hanging: tuple[str, ...] = ()
        self.times: dict[str, list[float]] = {}

        @intercept
        async def troubled(name: str, values: Mapping[str, Any], send: Send) -> Any:
            self.times.setdefault(name, []).append(asyncio.get_running_loop().time())
            if name in self.hanging:
                await asyncio.Event().wait()
            if name in self.failing:
                raise TimeoutError("canceling statement due to statement timeout")
            return await send()


@pytest.fixture
def trouble(intercept: Intercept) -> Trouble:
    return Trouble(intercept)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("way", ["failing", "hanging"])
async def test_claiming_goes_on_while_scans_do_not_come_back(rig: Rig, trouble: Trouble, name: str, way: str) -> None:
    setattr(trouble, way, (name,))
    await rig.work(done, **POLLING)
    for number in range(5):
        await rig.put(str(number))
        await rig.put(str(number), key="k")
        await rig.witness.wait(events.Handled, count=2 * number + 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "role"), [("survey", "scan"), ("claim", "claim")])
async def test_what_fails_is_told_once_and_tried_again_after_growing_pauses(
    rig: Rig, trouble: Trouble, name: str, role: str
) -> None:
    """A scan that works does not hide that claims fail, nor the other way round."""
    trouble.failing = (name,)
    await rig.work(done, **POLLING)
    await eventually(lambda: len(trouble.times.get(name, ())) >= 6, timeout=20)
    first, *_, last = trouble.times[name][:6]
    assert last - first >= sum(pause_after(failures, 0.0) for failures in range(1, 6))
    assert [event.role for event in rig.witness.of(events.StatementFailed)] == [role]
    trouble.failing = ()
    await rig.put("a")
    await rig.witness.wait(events.StatementWorks, role=role)
    await rig.witness.wait(events.Handled)


async def test_claims_without_keys_do_not_wait_for_claims_of_keys_that_fail(rig: Rig, trouble: Trouble) -> None:
    trouble.failing = ("claim_keys", "find_keys")
    await rig.work(done)
    await rig.put("a", key="k")
    await eventually(lambda: "claim_keys" in trouble.times or "find_keys" in trouble.times)
    await rig.put("b")
    await rig.witness.wait(events.Handled)


async def test_what_lies_below_the_floor_is_found(rig: Rig) -> None:
    await rig.ended(events.Handled, done, "a", **POLLING)
    await rig.sql("insert into {t} (queue, payload, next_attempt_at) values ('orders', 'b', now() - interval '1 h')")
    await rig.witness.wait(events.Handled, count=2)


async def test_very_much_below_the_floor_is_found_in_due_order(rig: Rig) -> None:
    seen = Seen()
    await rig.ended(events.Handled, seen, "a", **POLLING)
    many = 3 * MOST_STRAYS
    await rig.sql(
        "insert into {t} (queue, payload, next_attempt_at)"
        f" select 'orders', convert_to(n::text, 'UTF8'), now() - interval '1 h' + n * interval '1 s'"
        f" from generate_series(1, {many}) n"
    )
    await eventually(rig.is_empty, timeout=30)
    assert [int(body) for body in seen.bodies[1:]] == list(range(1, many + 1))


async def test_one_look_serves_all_who_would_look_soon(rig: Rig, intercept: Intercept) -> None:
    asked: list[list[str]] = []

    @intercept
    async def noted(name: str, values: Mapping[str, Any], send: Send) -> Any:
        if name == "survey":
            asked.append(sorted(values["queues"]))
        return await send()

    client = rig.another_client(watch=False, listen=False)
    queues = [f"q{number}" for number in range(20)]
    workers = [await rig.work(done, queue, client=client) for queue in queues]
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
    gate = Gate()
    await rig.work(gate, **POLLING)
    await eventually(lambda: {"survey", "drawn_ids"} <= {name for _, name in sent})
    await eventually(lambda: {"claimable_keys", "walk_keys"} & {name for _, name in sent})
    gate.open.set()
    await rig.witness.wait(events.Handled, count=100)
    claiming = {connection for connection, name in sent if name == "claim_keys"}
    used = {name for connection, name in sent if connection in claiming}
    assert used <= {"claim", "claim_keys", "find_keys", "overtaken"}
