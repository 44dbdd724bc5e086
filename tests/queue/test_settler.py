"""Outcomes are written together, again after a failure, and only under their lease."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Dead, Done, Outcome, Release, Retry
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually


async def done(claim: Claim) -> Done:
    return DONE


class TestGroupCommit:
    async def test_one_message_is_one_statement(self, rig: Rig, sent: list[str]) -> None:
        await rig.work(done)
        for count in (1, 2, 3):
            await rig.put("a")
            await rig.witness.wait(events.Handled, count=count)
        assert sent.count("settle_done") == 3

    async def test_under_load_a_statement_writes_many(self, rig: Rig, sent: list[str]) -> None:
        await rig.sql("insert into {t} (queue, payload) select 'orders', '' from generate_series(1, 2000)")
        await rig.work(done, max_workers=4, fetch_batch_size=100)
        await rig.witness.wait(events.Handled, count=2000)
        assert sent.count("settle_done") <= 400

    async def test_what_finishes_while_a_statement_is_under_way_goes_into_the_next(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        hold = asyncio.Event()
        fetch = DedicatedConnection.fetch

        async def held(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
            if statement.name == "settle_done":
                sizes.append(len(values["ids"]))
                if len(sizes) == 1:
                    await hold.wait()
            return await fetch(connection, statement, values)

        monkeypatch.setattr(DedicatedConnection, "fetch", held)
        worker = await rig.work(done, max_workers=20, fetch_batch_size=20)
        await rig.put("first")
        await eventually(lambda: sizes)
        await rig.put(*["x"] * 20)
        await rig.witness.wait(events.Started, count=21)
        await eventually(lambda: not worker.running)
        hold.set()
        await rig.witness.wait(events.Handled, count=21)
        assert sizes == [1, 20]

    async def test_outcomes_of_several_workers_go_into_one_statement(self, rig: Rig, sent: list[str]) -> None:
        together = asyncio.Event()

        async def handle(claim: Claim) -> Done:
            await together.wait()
            return DONE

        for number in range(10):
            await rig.work(handle, f"q{number}")
            await rig.put("x", queue=f"q{number}")
        await rig.witness.wait(events.Started, count=10)
        together.set()
        await rig.witness.wait(events.Handled, count=10)
        assert sent.count("settle_done") <= 2

    async def test_what_is_given_back_is_written_last(self, rig: Rig, sent: list[str]) -> None:
        """Who hears of it must not find its key held by what ended together with it."""

        async def handle(claim: Claim) -> Outcome:
            return Dead() if claim.payload == b"a" else DONE

        # Who knows that its handler is quick takes several messages of a key at once.
        await rig.work(handle)
        await rig.put("first")
        await rig.witness.wait(events.Handled)
        await rig.put("a", "b", key="k")
        await rig.witness.wait(events.Handled, count=2)
        assert "settle_release" not in sent[: sent.index("settle_dead")]


class Cut:
    """Breaks the connection around the first settle statement, before or after the server has got it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: str, before_retry: Any = None) -> None:
        self.cut = 0
        fetch = DedicatedConnection.fetch

        async def breaking(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
            if not statement.name.startswith("settle_") or self.cut:
                return await fetch(connection, statement, values)
            self.cut += 1
            if when == "after":
                await fetch(connection, statement, values)
            if before_retry is not None:
                await before_retry()
            raise ConnectionResetError

        monkeypatch.setattr(DedicatedConnection, "fetch", breaking)


class TestBrokenConnection:
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("outcome", [DONE, Retry(3600.0), Dead()], ids=["done", "retry", "dead"])
    async def test_the_outcome_is_written_exactly_once(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, when: str
    ) -> None:
        async def handle(claim: Claim) -> Outcome:
            return outcome

        cut = Cut(monkeypatch, when)
        await rig.work(handle, lease_ttl_seconds=5.0)
        await rig.put("a")
        expected = {Done: events.Handled, Retry: events.Retried, Dead: events.Died}[type(outcome)]
        await rig.witness.wait(expected)
        rows, letters = await rig.rows(), await rig.dead()
        assert (cut.cut, len(rig.witness.of(events.Started))) == (1, 1)
        assert [row["attempts_count"] for row in rows] == ([1] if isinstance(outcome, Retry) else [])
        assert [letter["attempts_count"] for letter in letters] == ([1] if isinstance(outcome, Dead) else [])
        assert rig.witness.of(events.LeaseWasLost) == []

    async def test_the_loss_and_the_return_are_told(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        Cut(monkeypatch, "before")
        await rig.work(done)
        await rig.put("a")
        lost = await rig.witness.wait(events.StatementFailed, role="settle")
        await rig.witness.wait(events.StatementWorks, role="settle")
        assert isinstance(lost.error, ConnectionResetError)

    async def test_a_lease_lost_during_an_outage_is_told_as_lost(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def take_away() -> None:
            await rig.sql("update {t} set acquired_token = gen_random_uuid(), acquired_at = now()")

        Cut(monkeypatch, "before", take_away)
        await rig.work(done)
        await rig.put("a")
        await rig.witness.wait(events.LeaseWasLost)
        assert rig.witness.of(events.Handled) == []


class TestLostLease:
    @pytest.mark.parametrize(
        "outcome", [DONE, Retry(0.0), Dead(), Release(counts=True)], ids=["done", "retry", "dead", "release"]
    )
    async def test_nothing_is_written_without_the_lease(self, driver_rig: Rig, outcome: Outcome) -> None:
        rig = driver_rig

        async def handle(claim: Claim) -> Outcome:
            if claim.payload == b"b":
                return DONE
            await rig.sql("update {t} set acquired_token = gen_random_uuid() where payload = 'a'")
            rows.extend(await rig.rows())
            return outcome

        rows: list[Any] = []
        await rig.work(handle)
        await rig.put("a")
        lost = await rig.witness.wait(events.LeaseWasLost)
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert (lost.phase, await rig.rows(), await rig.dead()) == ("settling", rows, [])

    async def test_a_stolen_key_is_not_released_by_the_one_who_lost_it(self, rig: Rig) -> None:
        """The thief's message of the key still runs: the next one must wait for it."""

        async def handle(claim: Claim) -> Done:
            if claim.payload == b"a":
                await rig.sql(
                    "update {t} set acquired_token = gen_random_uuid(), acquired_at = now() where payload = 'a'"
                )
            return DONE

        await rig.work(handle, **POLLING)
        await rig.put("a", key="k")
        await rig.witness.wait(events.LeaseWasLost)
        await rig.put("b", key="k")
        await rig.put("c", key="other")
        await rig.witness.wait(events.Handled)
        assert [(row["payload"], row["deliveries_count"]) for row in await rig.rows()] == [(b"a", 1), (b"b", 0)]
