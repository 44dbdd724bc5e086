"""Batch handlers: how many, how long to wait for more, and what becomes of each message."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox.queue import DONE, Claim, Dead, NoRetry, Outcome, Retry
from tests.queue.rig import POLLING, Rig


class Batches:
    """A handler that keeps what it got and answers one outcome for each."""

    def __init__(self, answer: Callable[[Claim], Any] = lambda claim: DONE) -> None:
        self.seen: list[list[str]] = []
        self._answer = answer

    async def __call__(self, claims: Sequence[Claim]) -> list[Outcome]:
        self.seen.append([claim.payload.decode() for claim in claims])
        return [self._answer(claim) for claim in claims]

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.seen]

    @property
    def order(self) -> list[str]:
        return [body for batch in self.seen for body in batch]


class TestSize:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "sizes"),
        [
            ({"batch_size": 5}, [5, 5, 5, 5]),
            ({"fetch_batch_size": 7}, [7, 7]),
            ({"batch_size": 20, "fetch_batch_size": 5}, [20, 20]),
        ],
        ids=["as it was said", "fetch_batch_size if nothing else is said", "larger than fetch_batch_size"],
    )
    async def test_a_backlog_comes_in_full_batches(
        self, driver_rig: Rig, options: dict[str, int], sizes: list[int]
    ) -> None:
        handle = Batches()
        await driver_rig.put(*["x"] * sum(sizes))
        await driver_rig.work(handle, batch=True, **options)
        await driver_rig.witness.wait(events.Handled, count=sum(sizes))
        assert handle.sizes == sizes

    @pytest.mark.parametrize("key", [None, "customer"], ids=["keyless", "keyed"])
    async def test_is_never_exceeded(self, rig: Rig, key: str | None) -> None:
        handle = Batches()
        await rig.work(handle, batch=True, batch_size=3, fetch_batch_size=20)
        await rig.put(*["x"] * 60)
        await rig.witness.wait(events.Handled, count=60)
        await rig.put(*["x"] * 60, key=key)
        await rig.put(*["x"] * 5, key="other")
        await rig.witness.wait(events.Handled, count=125)
        assert max(handle.sizes) == 3


class TestWait:
    @pytest.mark.parametrize(
        ("wait", "bodies"), [(0.0, "a"), (0.1, "ab")], ids=["there is none", "it ends with what there is"]
    )
    async def test_is_no_longer_than_it_says(self, rig: Rig, wait: float, bodies: str) -> None:
        handle = Batches()
        await rig.ended(events.Handled, handle, *bodies, batch=True, batch_size=100, batch_wait=wait)
        assert handle.sizes == [len(bodies)]

    async def test_gathers_what_comes_meanwhile(self, rig: Rig) -> None:
        handle = Batches()
        await rig.work(handle, batch=True, batch_size=3, batch_wait=30.0)
        for number in (1, 2, 3):
            await rig.put("x")
            await rig.witness.wait(events.Claimed, count=number)
        await rig.witness.wait(events.Handled, count=3)
        assert handle.sizes == [3]

    @pytest.mark.parametrize("workers", [1, 3])
    async def test_that_ended_short_does_not_swallow_the_next_message(self, rig: Rig, workers: int) -> None:
        await rig.work(Batches(), batch=True, batch_size=100, batch_wait=0.02, max_workers=workers)
        for count in range(1, 8):
            await rig.put("x")
            await rig.witness.wait(events.Handled, count=count)


class Panic(BaseException):
    """What a Rust extension raises."""


class TestOutcomes:
    async def test_each_message_gets_its_own(self, driver_rig: Rig) -> None:
        answers = {b"done": DONE, b"retry": Retry(3600.0), b"dead": Dead("rejected")}
        await driver_rig.work(Batches(lambda claim: answers[claim.payload]), batch=True)
        await driver_rig.put(*(body.decode() for body in answers))
        for kind in (events.Handled, events.Retried, events.Died):
            await driver_rig.witness.wait(kind)
        rows, letters = await driver_rig.rows(), await driver_rig.dead()
        assert [row["payload"] for row in rows] == [b"retry"]
        assert [letter["payload"] for letter in letters] == [b"dead"]

    @pytest.mark.parametrize(
        "error",
        [ValueError("no database"), Panic("no"), pytest.fail.Exception("no"), SystemExit(1), asyncio.CancelledError()],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_it_raises_fails_all_and_no_other_batch(self, rig: Rig, error: BaseException) -> None:
        async def handle(claims: Sequence[Claim]) -> list[Outcome]:
            if claims[0].payload != b"good":
                raise error
            return [DONE] * len(claims)

        await rig.put("a", "b", "c")
        await rig.work(handle, batch=True, batch_size=3, retry_strategy=NoRetry())
        await rig.witness.wait(events.Died, count=3)
        assert [letter["error_message"] for letter in await rig.dead()] == [str(error)] * 3
        await rig.put("good", "good")
        await rig.witness.wait(events.Handled, count=2)

    @pytest.mark.parametrize(
        "answer", [[], [DONE], [DONE] * 4, None, DONE, iter([DONE] * 3)], ids=["0", "1", "4", "None", "DONE", "iter"]
    )
    async def test_a_wrong_number_fails_all(self, rig: Rig, answer: Any) -> None:
        async def handle(claims: Sequence[Claim]) -> Any:
            return answer

        await rig.put("a", "b", "c")
        await rig.work(handle, batch=True, retry_strategy=NoRetry())
        await rig.witness.wait(events.Died, count=3)
        await rig.ended(events.Handled, Batches(), "d", queue="other", batch=True)

    async def test_what_is_no_outcome_fails_its_message_only(self, rig: Rig) -> None:
        handle = Batches(lambda claim: None if claim.payload == b"b" else DONE)
        await rig.work(handle, batch=True, retry_strategy=NoRetry())
        await rig.put("a", "b", "c")
        await rig.witness.wait(events.Handled, count=2)
        await rig.witness.wait(events.Died)
        assert [letter["payload"] for letter in await rig.dead()] == [b"b"]


class TestKeys:
    async def test_messages_of_a_key_are_in_order_within_and_across_batches(self, rig: Rig) -> None:
        handle = Batches()
        bodies = [f"{number:02}" for number in range(25)]
        await rig.put(*bodies, key="customer")
        await rig.work(handle, batch=True, batch_size=10, max_workers=4)
        await rig.witness.wait(events.Handled, count=25)
        assert handle.order == bodies

    async def test_after_a_failure_the_later_ones_of_its_key_come_again_after_it(self, rig: Rig) -> None:
        handle = Batches(lambda claim: Retry(0.05) if claim.payload == b"02" and not claim.attempts_count else DONE)
        await rig.put("01", "02", "03", "04", key="customer")
        await rig.work(handle, batch=True, batch_size=4)
        await rig.witness.wait(events.Handled, count=4)
        assert handle.order == ["01", "02", "03", "04", "02", "03", "04"]

    async def test_other_keys_of_the_batch_are_not_held_up(self, rig: Rig) -> None:
        await rig.put("bad", key="one")
        await rig.put("good", key="two")
        await rig.work(Batches(lambda claim: Retry(3600.0) if claim.payload == b"bad" else DONE), batch=True)
        handled = await rig.witness.wait(events.Handled)
        assert handled.deliveries_count == 1

    async def test_messages_behind_a_retried_one_of_their_key_are_not_counted_as_crashes(self, rig: Rig) -> None:
        failures: list[int] = []

        async def handle(claims: Sequence[Claim]) -> list[Outcome]:
            if claims[0].payload == b"head" and len(failures) < 6:
                failures.append(len(claims))
                return [Retry(0.001), *[DONE] * (len(claims) - 1)]
            return [DONE] * len(claims)

        await rig.work(handle, batch=True, batch_size=10, crash_limit=3, **POLLING)
        await rig.put("head", "a", "b", key="k")
        await rig.witness.wait(events.Handled, count=3)
        assert (max(failures), await rig.dead()) == (3, [])
