"""Many publish together, until one must be alone."""

import asyncio

from faststream_outbox._internal.relay.brokers.rabbit import Turns
from tests.waiting import eventually


async def test_who_is_alone_waits_for_who_runs_and_lets_nobody_in() -> None:
    turns, done = Turns(), asyncio.Event()
    seen: list[str] = []

    async def run(name: str) -> None:
        async with turns.together():
            seen.append(name)
            await done.wait()

    async def run_alone() -> None:
        async with turns.alone():
            seen.append("alone")
            # Whoever came meanwhile would have had its turn by now.
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append("no longer")

    first = [asyncio.create_task(run("one")), asyncio.create_task(run("two"))]
    await eventually(lambda: seen == ["one", "two"])
    then = [asyncio.create_task(run_alone()), asyncio.create_task(run("later"))]
    for _ in range(10):
        await asyncio.sleep(0)
    assert seen == ["one", "two"]
    done.set()
    await asyncio.gather(*first, *then)
    assert seen == ["one", "two", "alone", "no longer", "later"]


async def test_who_is_cancelled_stands_in_nobodys_way() -> None:
    turns = Turns()

    async def run() -> None:
        async with turns.together():
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(10), turns.alone():
        pass
