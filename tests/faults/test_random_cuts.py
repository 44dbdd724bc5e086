"""Connections are cut, deafened and silenced at random while transactional handlers work: every effect happens once."""

import asyncio
import random
from collections import Counter

import pytest

from tests.faults.commit_trial import WAYS, Trial
from tests.faults.proxy import Way

pytestmark = pytest.mark.faults

SECONDS = 5.0


async def test_random_cuts_double_and_lose_nothing(far: Trial, seed: int) -> None:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    until = loop.time() + SECONDS
    cuts = 0
    is_over = False

    async def publish() -> None:
        while not is_over:
            await far.publish(*WAYS)
            await asyncio.sleep(0.03)

    async with far.running(*WAYS):
        publishing = asyncio.create_task(publish())
        while loop.time() < until:
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            far.proxy.way = chance.choice([Way.OPEN, Way.DEAF, Way.DEAF, Way.BLACK_HOLE])
            await asyncio.sleep(chance.uniform(0.0, 0.05))
            cuts += far.proxy.cut()
            far.proxy.way = Way.OPEN
        is_over = True
        await publishing
        await far.finished(*WAYS)
        await far.is_settled()
    expected = Counter(range(1, far.published + 1))
    found = {way: await far.effects(way) for way in WAYS}
    twice = {way: sorted((effects - expected).items())[:10] for way, effects in found.items() if effects != expected}
    print(f"{cuts} connections cut, {far.published} messages on {len(WAYS)} ways, {sum(far.runs.values())} runs")
    assert (twice, cuts > 0) == ({}, True)
