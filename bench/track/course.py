"""The questions that a contestant is asked: publish, drain, latency, timers, share, idle, memory, dispatch, relay.

Times are taken here, the same way for every queue. A drain ends when the consumer has stopped and every
outcome is written, and counts only if nothing is left. A relay ends so too, after the stream has all of it.
Latency counts from just before COMMIT is sent to the beginning of the handler.
"""

import asyncio
import contextlib
import os
import random
import time
from typing import Any
from uuid import uuid4

from contest import Clock, Contestant, rss, versions
from count import Count
from downstream import downstream

Answer = dict[str, Any]
PATIENCE = 240.0


async def describe(contestant: Contestant) -> Answer:
    """Versions."""
    return dict(versions(contestant))


async def reset(contestant: Contestant) -> Answer:
    """Empty tables."""
    await contestant.reset()
    return {}


async def rest(contestant: Contestant) -> Answer:
    """Close idle connections."""
    await contestant.rest()
    return {}


async def publish(contestant: Contestant, how: str, messages: int, writers: int = 1) -> Answer:
    """One message a transaction, beside a business row."""
    await contestant.reset()
    await asyncio.gather(*(contestant.publish_single(how, 5) for _ in range(writers)))  # opens the connections
    clock = Clock()
    await asyncio.gather(*(contestant.publish_single(how, messages // writers) for _ in range(writers)))
    done = messages // writers * writers
    return {"rate": done / clock.seconds, "cpu": clock.cpu / done}


async def publish_many(contestant: Contestant, how: str, messages: int) -> Answer:
    """A thousand messages a transaction."""
    messages = messages // 1000 * 1000
    await contestant.reset()
    await contestant.publish_thousand(how, 1000)
    clock = Clock()
    await contestant.publish_thousand(how, messages)
    return {"rate": messages / clock.seconds, "cpu": clock.cpu / messages}


async def drain(
    contestant: Contestant,
    settings: str,
    messages: int,
    sleep: float = 0.0,
    workers: int | None = None,
    keys: int = 0,
    others: int = 0,
    filled: bool = False,
) -> Answer:
    """Handle a backlog, which is there already if it is `filled`."""
    if not filled:
        await fill(contestant, messages, keys, others)
    count = Count(messages)
    clock = Clock()
    async with contestant.consumer(settings, count, sleep=sleep, workers=workers):
        async with asyncio.timeout(PATIENCE):
            await count.done.wait()
        handled = clock.seconds
    seconds = clock.seconds
    answer = _spent(clock, count) | {"stopping": seconds - handled}
    await _nothing_left(contestant, messages)
    return answer


def _spent(clock: Clock, count: Count) -> Answer:
    return _rated(clock, count.messages) | {"decay": count.decay}


def _rated(clock: Clock, messages: int) -> Answer:
    seconds, cpu, server = clock.seconds, clock.cpu, clock.server
    return {"rate": messages / seconds, "cpu": cpu / messages, "server_cpu": server / messages}


async def _nothing_left(contestant: Contestant, messages: int) -> None:
    left = await contestant.left()
    if left:
        msg = f"{left} of {messages} are left after the drain"
        raise RuntimeError(msg)


async def relay(contestant: Contestant, settings: str, messages: int, workers: int | None = None) -> Answer:
    """Hand a backlog on to a stream of a NATS server, whose address the environment holds."""
    await fill(contestant, messages)
    async with downstream(os.environ["BENCH_NATS"]) as behind:
        clock = Clock()
        async with contestant.relay(settings, behind, workers=workers), asyncio.timeout(PATIENCE):
            await behind.has(messages)
        answer = _rated(clock, messages)
    await _nothing_left(contestant, messages)
    return answer


async def plain_loop(contestant: Contestant, messages: int, in_flight: int) -> Answer:
    """Publish as much to such a stream with its client alone: no database, no framework."""
    ids = [str(uuid4()) for _ in range(messages)]
    async with downstream(os.environ["BENCH_NATS"]) as behind:
        clock = Clock()
        await behind.publish(ids, in_flight)
        answer = _rated(clock, messages)
        await behind.has(messages)
    return answer


async def dispatch(contestant: Any, how: str, messages: int, by: int) -> Answer:
    """Read a topic from its beginning to its end; writing it is not counted."""
    await contestant.topic(messages)
    # The first statements of a connection are planned.
    async for _ in contestant.read(how, log=messages, messages=min(by, messages), by=by):
        pass
    count = Count(messages)
    clock = Clock()
    async with asyncio.timeout(PATIENCE):
        async for handled in contestant.read(how, log=messages, messages=messages, by=by):
            count.many(handled)
    return _spent(clock, count)


async def latency(
    contestant: Contestant, settings: str, seconds: float, rate: float = 20.0, churn: int = 0, seed: int = 1
) -> Answer:
    """Milliseconds from commit to handler at a light load, and those until the publisher went on."""
    await contestant.reset()
    if churn:
        await contestant.churn(churn)
    committed: dict[int, float] = {}
    began: dict[int, float] = {}
    commits: list[float] = []
    count, done = int(seconds * rate), asyncio.Event()

    def on_message(body: Any) -> None:
        began.setdefault(body["n"], time.perf_counter())
        if len(began) > count:  # and the one that opens the connections
            done.set()

    chance = random.Random(seed)
    async with contestant.consumer(settings, on_message):
        await contestant.publish_marked(-1, lambda: None)
        await asyncio.sleep(1.0)
        clock = Clock()
        for number in range(count):

            def committing(number: int = number) -> None:
                committed[number] = time.perf_counter()

            # Around the even pace, so that no queue's own rhythm falls in with it.
            await asyncio.sleep(chance.uniform(0.5, 1.5) / rate)
            await contestant.publish_marked(number, committing)
            commits.append((time.perf_counter() - committed[number]) * 1000)
        spent, cpu, server = clock.seconds, clock.cpu, clock.server
        async with asyncio.timeout(PATIENCE):
            await done.wait()
    waited = sorted((began[number] - at) * 1000 for number, at in committed.items())
    return {"ms": waited, "commit_ms": commits, "cpu_share": cpu / spent, "server_share": server / spent}


async def timers(contestant: Contestant, settings: str, count: int, seed: int = 1) -> Answer:
    """Milliseconds by which timers between 0.2 and 5 s from now are late."""
    await contestant.reset()
    chance = random.Random(seed)
    late: list[float] = []
    done = asyncio.Event()
    # A second more than it takes to publish them, so that none is late because of that.
    begin = time.time() + 2.0
    due = [begin + chance.uniform(0.2, 5.0) for _ in range(count)]

    def on_message(body: Any) -> None:
        late.append((time.time() - due[body["n"]]) * 1000)
        if len(late) == count:
            done.set()

    async with contestant.consumer(settings, on_message):
        await contestant.publish_timers(due)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
    return {"ms": sorted(late)}


async def fill(contestant: Contestant, messages: int, keys: int = 0, others: int = 0) -> Answer:
    """Empty tables and a backlog."""
    await contestant.reset()
    if others:
        await contestant.others(others)
    await contestant.backlog(messages, keys)
    return {}


async def share(contestant: Contestant, settings: str, begin: float, quiet: float = 1.0) -> Answer:
    """From `begin` on, handle what there is together with others, until nothing comes for a while."""
    handled, last = 0, begin
    arrived = asyncio.Event()

    def on_message(body: object) -> None:
        nonlocal handled, last
        handled += 1
        last = time.time()
        arrived.set()

    await asyncio.sleep(begin - time.time())
    async with contestant.consumer(settings, on_message):
        with contextlib.suppress(TimeoutError):
            while True:
                arrived.clear()
                await asyncio.wait_for(arrived.wait(), quiet)
    return {"handled": handled, "last": last}


async def memory(contestant: Contestant, settings: str, messages: int) -> Answer:
    """Bytes of memory over a drain, at each tenth."""
    await contestant.reset()
    await contestant.backlog(messages)
    count = Count(messages)
    sizes: list[int] = []
    async with contestant.consumer(settings, count):
        while not count.done.is_set():
            if len(count.times) > len(sizes):
                sizes.append(rss())
            await asyncio.sleep(0.02)
    return {"rss": [*sizes, rss()]}


async def idle(contestant: Any, subscribers: int, seconds: float) -> Answer:
    """Share of a core that consumers take when there is nothing to do."""
    await contestant.reset()
    async with contestant.idlers(subscribers):
        await asyncio.sleep(2.0)
        clock = Clock()
        await asyncio.sleep(seconds)
        return {"cpu_share": clock.cpu / clock.seconds, "server_share": clock.server / clock.seconds}


async def publish_call(contestant: Any, bodies: int, size: int) -> Answer:
    """Memory that one call with many bodies takes at its peak, as a multiple of their size."""
    await contestant.reset()
    return dict(await contestant.publish_in_one_call(bodies, size))
