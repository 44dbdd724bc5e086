"""COMMIT comes about and its answer is lost: whether it did is found out, and effects happen once, on every way out."""

import asyncio
from collections import Counter

import pytest

from faststream_outbox.events import LeaseWasLost
from tests.faults.commit_trial import WAYS, Trial
from tests.faults.proxy import Way
from tests.waiting import eventually

pytestmark = pytest.mark.faults

MESSAGES = 4


@pytest.mark.parametrize("messages", [1, MESSAGES])
@pytest.mark.parametrize("way", WAYS)
async def test_effects_happen_once_although_the_answer_to_their_commit_was_lost(
    far: Trial, way: str, messages: int
) -> None:
    for _ in range(messages):
        await far.publish(way)

    far.before_commit(lambda: setattr(far.proxy, "way", Way.DEAF))
    async with far.running(way):

        async def is_committed() -> bool:
            return bool(await far.effects(way))

        await eventually(is_committed, 20.0, "the first transaction reaches the server")
        far.proxy.way = Way.OPEN
        far.proxy.cut()
        # A message behind them is the proof that somebody has found out and gone on.
        await far.publish(way)
        await far.finished(way)
        await far.is_settled()
    assert await far.effects(way) == Counter(range(1, messages + 2))
    assert set(far.runs.values()) == {1}
    assert far.reported(LeaseWasLost) == []


@pytest.mark.parametrize("way", WAYS)
async def test_message_is_tried_again_whose_commit_never_arrived(far: Trial, way: str) -> None:
    for _ in range(MESSAGES):
        await far.publish(way)
    fallen = asyncio.Event()

    def fall_silent() -> None:
        far.proxy.way = Way.BLACK_HOLE
        fallen.set()

    far.before_commit(fall_silent)
    async with far.running(way):
        await asyncio.wait_for(fallen.wait(), 20.0)
        await eventually(lambda: far.proxy.swallowed, 20.0)
        far.proxy.cut()
        far.proxy.way = Way.OPEN
        await far.finished(way)
        await far.is_settled()
    assert await far.effects(way) == Counter(range(1, MESSAGES + 1))
    assert max(far.runs.values()) == 2
