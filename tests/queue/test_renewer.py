"""Leases are renewed in time, and no more often than needed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue.renewer import LONGEST_PAUSE, SHORTEST_PAUSE, due, pause
from faststream_outbox.queue import Claim, Done
from tests.cases import each
from tests.queue.claims import claim_of
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Gate, Rig
from tests.waiting import eventually

STEAL = "update {t} set acquired_token = gen_random_uuid(), next_attempt_at = now() + interval '1 h'"


class TestPause:
    @each(("ttls", "expected"), [([], LONGEST_PAUSE), ([3600.0], LONGEST_PAUSE), ([0.001], SHORTEST_PAUSE)])
    def test_has_bounds(self, ttls: list[float], expected: float) -> None:
        assert pause(ttls) == expected

    @each("ttl", [0.2, 1.0, 10.0, 29.0])
    def test_leaves_time_to_renew_before_half_the_lease_is_over(self, ttl: float) -> None:
        assert ttl / 3 + pause([ttl, 3600.0]) <= ttl / 2 + 1e-9


class TestDue:
    @pytest.fixture
    def claim(self) -> Claim:
        return claim_of(claimed_at=100.0, lease_ttl_seconds=60.0)

    @each(("now", "is_due"), [(119.9, False), (120.0, True), (500.0, True)])
    def test_is_a_lease_that_is_a_third_of_its_time_old(self, claim: Claim, now: float, is_due: bool) -> None:
        assert due([claim], now) == ([claim] if is_due else [])

    def test_counts_from_the_last_renewal(self, claim: Claim) -> None:
        claim.renewed(150.0)
        assert due([claim], 160.0) == []

    def test_is_no_lease_that_was_lost(self, claim: Claim) -> None:
        claim.lose(cancel=False)
        assert due([claim], 500.0) == []


@pytest.mark.usefixtures("renewed_often")
class TestRenewing:
    async def test_one_statement_renews_all_that_runs(self, rig: Rig, sent: list[str]) -> None:
        gate = Gate()
        worker = await rig.work(gate, max_workers=20, fetch_batch_size=20, lease_ttl_seconds=60.0)
        await rig.put(*(str(number) for number in range(20)))
        await eventually(lambda: 20 in [event.count for event in rig.witness.of(events.LeasesRenewed)])
        gate.open.set()
        await rig.witness.wait(events.Handled, count=20)
        await worker.stop()
        assert sent.count("renew") == len(rig.witness.of(events.LeasesRenewed))

    @pytest.mark.parametrize("policy", ["continue", "cancel"])
    async def test_a_lost_lease_cancels_the_handler_if_the_worker_says_so_and_changes_nothing(
        self, rig: Rig, policy: str
    ) -> None:
        ended: list[str] = []
        gate = Gate()

        async def handle(claim: Claim) -> Done:
            try:
                outcome = await gate(claim)
            except asyncio.CancelledError:
                ended.append("cancel")
                raise
            ended.append("continue")
            return outcome

        await rig.ended(events.Started, handle, "a", lease_ttl_seconds=60.0, on_lease_lost=policy)
        await rig.sql(STEAL)
        before = await rig.row()
        lost = await rig.witness.wait(events.LeaseWasLost)
        gate.open.set()
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert (lost.phase, ended[0], await rig.row()) == ("running", policy, before)

    async def test_one_that_fails_is_told_and_made_again(self, rig: Rig, intercept: Intercept) -> None:
        failures = iter([ConnectionResetError()])

        @intercept
        async def unreachable(name: str, values: Mapping[str, Any], send: Send) -> Any:
            if name == "renew" and (error := next(failures, None)) is not None:
                raise error
            return await send()

        await rig.ended(events.Started, Gate(), "a", lease_ttl_seconds=60.0)
        await rig.witness.wait(events.StatementFailed, role="renew")
        await rig.witness.wait(events.LeasesRenewed)
        await rig.witness.wait(events.StatementWorks, role="renew")

    async def test_a_message_that_lost_its_lease_while_it_waited_is_not_started(self, rig: Rig) -> None:
        gate = Gate()
        await rig.filled(gate, lease_ttl_seconds=60.0)
        await rig.sql(STEAL + " where payload = 'slow' and id > (select min(id) from {t})")
        await rig.witness.wait(events.LeaseWasLost, count=7, phase="waiting")
        gate.open.set()
        await rig.witness.wait(events.Handled, count=51)
        await rig.put("quick")
        await rig.witness.wait(events.Handled, count=52)
        assert len(rig.witness.of(events.Started)) == 52
