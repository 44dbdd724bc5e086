"""Outcomes are written together, again after a failure, and only under their lease."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Dead, Done, Outcome, Release, Retry
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import POLLING, Rig, Seen, done
from tests.waiting import eventually


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
        self, rig: Rig, intercept: Intercept
    ) -> None:
        """Also of several workers."""
        sizes: list[int] = []
        hold = asyncio.Event()

        @intercept
        async def held(name: str, values: Mapping[str, Any], send: Send) -> Any:
            if name == "settle_done":
                sizes.append(len(values["ids"]))
                if len(sizes) == 1:
                    await hold.wait()
            return await send()

        workers = [await rig.work(done, queue, max_workers=20, fetch_batch_size=20) for queue in ("orders", "mails")]
        await rig.put("first")
        await eventually(lambda: sizes)
        for queue in ("orders", "mails"):
            await rig.put(*["x"] * 10, queue=queue)
        await rig.witness.wait(events.Started, count=21)
        await eventually(lambda: not any(worker.running for worker in workers))
        hold.set()
        await rig.witness.wait(events.Handled, count=21)
        assert sizes == [1, 20]

    async def test_what_is_given_back_is_written_last(self, rig: Rig, sent: list[str]) -> None:
        """Who hears of it must not find its key held by what ended together with it."""
        # Who knows that its handler is quick takes several messages of a key at once.
        await rig.ended(events.Handled, Seen(lambda claim: Dead() if claim.payload == b"a" else DONE), "first")
        await rig.put("a", "b", key="k")
        await rig.witness.wait(events.Handled, count=2)
        assert "settle_release" not in sent[: sent.index("settle_dead")]


@pytest.fixture
def cut(intercept: Intercept) -> Callable[..., None]:
    """Breaks the connection around the first settle statement, before or after the server has got it."""

    def cut(when: str, meanwhile: Callable[[], Awaitable[object]] | None = None) -> None:
        left = iter([ConnectionResetError()])

        @intercept
        async def breaking(name: str, values: Mapping[str, Any], send: Send) -> Any:
            if not name.startswith("settle_") or (error := next(left, None)) is None:
                return await send()
            if when == "after":
                await send()
            if meanwhile is not None:
                await meanwhile()
            raise error

    return cut


class TestBrokenConnection:
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("outcome", [DONE, Retry(3600.0), Dead()], ids=["done", "retry", "dead"])
    async def test_the_outcome_is_written_exactly_once_and_all_is_told(
        self, rig: Rig, cut: Callable[..., None], outcome: Outcome, when: str
    ) -> None:
        cut(when)
        expected = {Done: events.Handled, Retry: events.Retried, Dead: events.Died}[type(outcome)]
        await rig.ended(expected, Seen(lambda claim: outcome), "a", lease_ttl_seconds=5.0)
        rows, letters = await rig.rows(), await rig.dead()
        assert len(rig.witness.of(events.Started)) == 1
        assert [row["attempts_count"] for row in rows] == ([1] if isinstance(outcome, Retry) else [])
        assert [letter["attempts_count"] for letter in letters] == ([1] if isinstance(outcome, Dead) else [])
        assert rig.witness.of(events.LeaseWasLost) == []
        lost = await rig.witness.wait(events.StatementFailed, role="settle")
        await rig.witness.wait(events.StatementWorks, role="settle")
        assert isinstance(lost.error, ConnectionResetError)

    async def test_a_lease_lost_during_an_outage_is_told_as_lost(self, rig: Rig, cut: Callable[..., None]) -> None:
        cut("before", rig.lease)
        await rig.ended(events.LeaseWasLost, done, "a")
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
            await rig.lease("payload = 'a'")
            rows.extend(await rig.rows())
            return outcome

        rows: list[Any] = []
        lost = await rig.ended(events.LeaseWasLost, handle, "a")
        await rig.put("b")
        await rig.witness.wait(events.Handled)
        assert (lost.phase, await rig.rows(), await rig.dead()) == ("settling", rows, [])

    async def test_a_stolen_key_is_not_released_by_the_one_who_lost_it(self, rig: Rig) -> None:
        """The thief's message of the key still runs: the next one must wait for it."""

        async def handle(claim: Claim) -> Done:
            if claim.payload == b"a":
                await rig.lease("payload = 'a'")
            return DONE

        await rig.ended(events.LeaseWasLost, handle, "a", key="k", **POLLING)
        await rig.put("b", key="k")
        await rig.put("c", key="other")
        await rig.witness.wait(events.Handled)
        assert [(row["payload"], row["deliveries_count"]) for row in await rig.rows()] == [(b"a", 1), (b"b", 0)]
