"""Leases are renewed in time, and no more often than needed."""

import asyncio
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.queue.renewer import LONGEST_PAUSE, SHORTEST_PAUSE, due, pause
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done, Worker
from tests.cases import each
from tests.queue.claims import claim_of
from tests.queue.rig import Rig
from tests.waiting import eventually


class TestPause:
    def test_is_the_longest_without_workers(self) -> None:
        assert pause([]) == LONGEST_PAUSE

    def test_is_the_longest_for_long_leases(self) -> None:
        assert pause([3600.0]) == LONGEST_PAUSE

    def test_is_not_shorter_than_the_shortest(self) -> None:
        assert pause([0.001]) == SHORTEST_PAUSE

    @each("ttl", [0.2, 1.0, 10.0, 29.0])
    def test_leaves_time_to_renew_before_half_the_lease_is_over(self, ttl: float) -> None:
        assert ttl / 3 + pause([ttl, 3600.0]) <= ttl / 2 + 1e-9


class TestDue:
    @each(("now", "is_due"), [(119.9, False), (120.0, True), (500.0, True)])
    def test_is_a_lease_that_is_a_third_of_its_time_old(self, now: float, is_due: bool) -> None:
        claim = claim_of(claimed_at=100.0, lease_ttl_seconds=60.0)
        assert due([claim], now) == ([claim] if is_due else [])

    def test_counts_from_the_last_renewal(self) -> None:
        claim = claim_of(claimed_at=100.0, lease_ttl_seconds=60.0)
        claim.renewed(150.0)
        assert due([claim], 160.0) == []

    def test_is_no_lease_that_was_lost(self) -> None:
        claim = claim_of(claimed_at=100.0, lease_ttl_seconds=60.0)
        claim.lose(cancel=False)
        assert due([claim], 500.0) == []


class TestRenewing:
    @pytest.mark.usefixtures("renewed_often")
    async def test_one_statement_renews_all_that_runs(self, rig: Rig, sent: list[str]) -> None:
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            await finish.wait()
            return DONE

        worker = await rig.work(handle, max_workers=20, fetch_batch_size=20, lease_ttl_seconds=60.0)
        await rig.put(*(str(number) for number in range(20)))
        await eventually(lambda: 20 in [event.count for event in rig.witness.of(events.LeasesRenewed)])
        finish.set()
        await rig.witness.wait(events.Handled, count=20)
        await worker.stop()
        assert sent.count("renew") == len(rig.witness.of(events.LeasesRenewed))

    @pytest.mark.usefixtures("renewed_often")
    @pytest.mark.parametrize("policy", ["continue", "cancel"])
    async def test_a_lost_lease_cancels_the_handler_if_the_worker_says_so(self, rig: Rig, policy: str) -> None:
        ended: list[str] = []
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            try:
                await finish.wait()
            except asyncio.CancelledError:
                ended.append("cancel")
                raise
            ended.append("continue")
            return DONE

        await rig.work(handle, lease_ttl_seconds=60.0, on_lease_lost=policy)
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await rig.sql("update {t} set acquired_token = gen_random_uuid(), next_attempt_at = now() + interval '1 h'")
        lost = await rig.witness.wait(events.LeaseWasLost)
        finish.set()
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert (lost.phase, ended[0]) == ("running", policy)

    @pytest.mark.usefixtures("renewed_often")
    async def test_a_cancelled_handler_of_a_lost_lease_changes_nothing_in_the_table(self, rig: Rig) -> None:
        async def handle(claim: Claim) -> Done:
            if claim.payload == b"a":
                await asyncio.Event().wait()
            return DONE

        await rig.work(handle, lease_ttl_seconds=60.0, on_lease_lost="cancel")
        await rig.put("a")
        await rig.witness.wait(events.Started)
        await rig.sql("update {t} set acquired_token = gen_random_uuid(), next_attempt_at = now() + interval '1 h'")
        before = await rig.row()
        await rig.witness.wait(events.LeaseWasLost)
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert await rig.row() == before


class TestWaiting:
    @pytest.mark.usefixtures("renewed_often")
    async def test_a_message_that_lost_its_lease_while_it_waited_is_not_started(self, rig: Rig) -> None:
        worker, finish = await self.filled(rig, lease_ttl_seconds=60.0)
        waiting = worker.waiting
        await rig.sql(
            "update {t} set acquired_token = gen_random_uuid(), next_attempt_at = now() + interval '1 h'"
            " where payload = 'slow' and id > (select min(id) from {t})"
        )
        await rig.witness.wait(events.LeaseWasLost, count=waiting, phase="waiting")
        finish.set()
        await rig.witness.wait(events.Handled, count=51)
        await rig.put("quick")
        await rig.witness.wait(events.Handled, count=52)
        assert len(rig.witness.of(events.Started)) == 52

    @pytest.mark.slow
    async def test_a_lease_that_could_not_be_renewed_in_time_is_not_begun_upon(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server is out of reach for longer than the lease: somebody else may have the message by now."""
        worker, finish = await self.filled(rig, lease_ttl_seconds=2.0)
        waiting = worker.waiting
        fetch = DedicatedConnection.fetch

        async def unreachable(connection: DedicatedConnection, statement: Statement, values: Any) -> Any:
            if statement.name == "renew":
                raise ConnectionResetError
            return await fetch(connection, statement, values)

        monkeypatch.setattr(DedicatedConnection, "fetch", unreachable)
        await asyncio.sleep(2.1)
        finish.set()
        await rig.witness.wait(events.LeaseWasLost, count=waiting, phase="waiting")
        assert len(rig.witness.of(events.Started)) == 51

    async def filled(self, rig: Rig, **options: Any) -> tuple[Worker, asyncio.Event]:
        """A worker that runs one slow message and has others waiting in memory."""
        finish = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            if claim.payload == b"slow":
                await finish.wait()
            return DONE

        worker = await rig.work(handle, fetch_batch_size=10, **options)
        await rig.put(*["quick"] * 50)
        await rig.witness.wait(events.Handled, count=50)
        await rig.put(*["slow"] * 8)
        await eventually(lambda: worker.waiting == 7, message="messages wait in memory")
        return worker, finish
