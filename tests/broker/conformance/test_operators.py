"""Dead letters for operators: found, counted, repaired, put back, deleted."""

from typing import Any

import pytest

from faststream_outbox import NoRetry
from faststream_outbox._internal.queue.dead_letters import DeadLetters, Replay, Selection
from tests.broker.conformance.ways import Seen, Way

EVERYTHING = Selection(everything=True)


class Ward:
    """A broker whose handler fails on negative numbers, and its dead letters."""

    def __init__(self, way: Way, seen: Seen) -> None:
        self.way = way
        self.broker = broker = way.broker()

        @broker.subscriber(["orders", "bills"], retry_strategy=NoRetry())
        async def handle(body: int) -> None:
            if body < 0:
                raise ValueError("broken") if body % 2 else KeyError("missing")
            seen(body)

    async def bury(self, *bodies: int, queue: str = "orders", **options: Any) -> DeadLetters:
        """The dead letters of these."""
        for body in bodies:
            before = len(await self.way.rows(dead=True))
            await self.way.publish_to_failing(body, queue, **options)

            async def it_is_dead(before: int = before) -> bool:
                return len(await self.way.rows(dead=True)) > before

            await self.way.eventually(it_is_dead)
        return DeadLetters(self.broker.client)


@pytest.fixture
def ward(way: Way, seen: Seen) -> Ward:
    return Ward(way, seen)


async def test_dead_letters_are_found_and_counted(way: Way, ward: Ward) -> None:
    async with way.running(ward.broker):
        letters = await ward.bury(-1, -2, -3)
        await ward.bury(-5, queue="bills", key="a")
        newest = [letter.payload for letter in await letters.find(EVERYTHING)]
        assert newest == [b"-5", b"-3", b"-2", b"-1"]
        second = (await letters.find(EVERYTHING, limit=2))[-1]
        assert [letter.payload for letter in await letters.find(EVERYTHING, before=second.id)] == [b"-2", b"-1"]
        for selection, expected in (
            (Selection(queue="orders"), 3),
            (Selection(key="a"), 1),
            (Selection(error_type="KeyError"), 1),
            (Selection(reason="retry_terminal"), 4),
            (Selection(reason="rejected"), 0),
            (Selection(ids=[second.id]), 1),
            (Selection(since=second.failed_at), 2),
            (Selection(until=second.failed_at), 2),
        ):
            assert await letters.count(selection) == expected
        groups = [(group.queue, group.error_type, group.count) for group in await letters.groups()]
        assert groups == [("orders", "ValueError", 2), ("bills", "ValueError", 1), ("orders", "KeyError", 1)]
        assert [group.count for group in await letters.groups("bills")] == [1]


async def test_dead_letters_are_put_back_and_handled_again(way: Way, ward: Ward, seen: Seen) -> None:
    async with way.running(ward.broker):
        letters = await ward.bury(-1, -3)
        number = (await letters.find(EVERYTHING))[-1]
        assert await letters.replay(EVERYTHING, dry_run=True) == Replay(2)
        assert await letters.edit(number.id, payload=b"7", headers={"content-type": "application/json"})
        assert await letters.replay(Selection(ids=[number.id])) == Replay(1, 1)
        assert await seen.first() == [7]
        await way.empty()
        assert [letter.payload for letter in await letters.find(EVERYTHING)] == [b"-3"]
        assert not await letters.edit(number.id, payload=b"8")


async def test_dead_letter_is_mended_and_put_back(way: Way, ward: Ward, seen: Seen) -> None:
    async with way.running(ward.broker):
        letters = await ward.bury(-1)
        (letter,) = await letters.find(EVERYTHING)
        assert await letters.edit_and_replay(letter.id, payload=b"9") == Replay(1, 1)
        assert await seen.first() == [9]
        assert await letters.count(EVERYTHING) == 0


async def test_dead_letter_whose_name_was_taken_meanwhile_stays_until_it_is_deleted(way: Way, ward: Ward) -> None:
    async with way.running(ward.broker):
        letters = await ward.bury(-1, timer_id="t")
        await ward.bury(-2, -3)
        await ward.broker.pause("orders")
        await way.publish(2, "orders", timer_id="t")
        letter = (await letters.find(EVERYTHING))[-1]
        assert await letters.replay(Selection(ids=[letter.id])) == Replay(1, 0, (letter.id,))
        assert await letters.count(EVERYTHING) == 3
        assert await letters.purge(Selection(error_type="ValueError"), slice_size=1) == 2
        assert [letter.payload for letter in await letters.find(EVERYTHING)] == [b"-2"]
