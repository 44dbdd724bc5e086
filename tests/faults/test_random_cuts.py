"""Connections are cut, deafened and silenced at random while transactional handlers work: every effect happens once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tests.faults.commit_trial import WAYS, Trial, trial
from tests.faults.proxy import Way

pytestmark = pytest.mark.faults

SECONDS = 5.0
SOAK_SECONDS = 180.0


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far(request: pytest.FixtureRequest, record: str) -> AsyncIterator[Trial]:
    async with trial(record, request.param) as one:
        yield one


async def disturbed(far: Trial, seed: int, seconds: float) -> int:
    """Publish on every way while the proxy does its worst; the number of connections that were cut."""
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
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
        await far.is_settled(*WAYS)
    return cuts


async def check(far: Trial, seed: int, seconds: float) -> None:
    cuts = await disturbed(far, seed, seconds)
    expected = Counter(range(1, far.published + 1))
    found = {way: await far.effects(way) for way in WAYS}
    twice = {way: sorted((effects - expected).items())[:10] for way, effects in found.items() if effects != expected}
    print(f"{cuts} connections cut, {far.published} messages on {len(WAYS)} ways, {sum(far.runs.values())} runs")
    assert (twice, cuts > 0) == ({}, True)


async def test_random_cuts_double_and_lose_nothing(far: Trial, seed: int) -> None:
    await check(far, seed, SECONDS)


@pytest.mark.soak
async def test_random_cuts_for_minutes_double_and_lose_nothing(far: Trial, seed: int) -> None:
    await check(far, seed, SOAK_SECONDS)
