"""`python -m bench.crowding`: what others do beside a worker, as ratios of the same work without them.

Each case runs twice a round, alone and beside what could slow it, in turns and on one server. Times are of this
machine; their ratios are what counts. `--only resume,killed` runs a part.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from bench.stage import Stage, stage
from faststream_outbox import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker, pause, resume

DUE = "now() - interval '1 hour'"
LATER = "now() + interval '1 day'"


@dataclass(slots=True)
class Tally:
    """A handler that counts, and tells when it has seen so many."""

    wanted: int
    at: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, claim: Claim) -> Outcome:
        self.at.append(time.perf_counter())
        if len(self.at) >= self.wanted:
            self.done.set()
        return DONE


async def fill(made: Stage, keys: int, each: int, due: str = DUE, queue: str = "orders", prefix: str = "k") -> None:
    """So many messages of each key, all keys in turn."""
    await run(
        made,
        f"insert into {made.table.name} (queue, payload, key, next_attempt_at)"
        f" select '{queue}', '1', '{prefix}' || key, {due}"
        f" from generate_series(1, {each}) n, generate_series(1, {keys}) key order by n, key",
    )


async def run(made: Stage, statement: str) -> None:
    """A statement in a transaction of its own."""
    async with made.engine.begin() as connection:
        await connection.execute(text(statement))


@contextlib.asynccontextmanager
async def working(
    made: Stage, handle: Any, *queues: str, clients: int = 1, **options: Any
) -> AsyncIterator[OutboxClient]:
    """Workers of one process each, and the first one's client."""
    opened = [OutboxClient(made.engine, made.table, dlq_table=made.dlq_table) for _ in range(clients)]
    settings: dict[str, Any] = {"max_workers": 20, "fetch_batch_size": 100} | options
    workers = [
        Worker(made.engine, made.table, list(queues or ["orders"]), handle, client=client, **settings)
        for client in opened
    ]
    await asyncio.gather(*(worker.start() for worker in workers))
    try:
        yield opened[0]
    finally:
        await asyncio.gather(*(worker.stop(timeout=1) for worker in workers))


async def resumed(made: Stage, *, crowded: bool) -> float:
    """Seconds for 4,000 keys, which waited for a worker, or for the end of a pause."""
    tally = Tally(4000)
    if not crowded:
        await fill(made, 4000, 1)
        began = time.perf_counter()
        async with working(made, tally):
            await tally.done.wait()
        return time.perf_counter() - began
    client = OutboxClient(made.engine, made.table, dlq_table=made.dlq_table)
    await pause(client, "orders", create=True)
    await fill(made, 4000, 1)
    async with working(made, tally) as client:
        await asyncio.sleep(3)
        began = time.perf_counter()
        await resume(client, "orders")
        await tally.done.wait()
        return time.perf_counter() - began


async def killed(made: Stage, *, crowded: bool) -> float:
    """Seconds until the key of a holder that died is handled, alone or beside 8,000 keys that wait for tomorrow."""
    tally = Tally(1)
    if crowded:
        await fill(made, 8000, 1, LATER)
    await fill(made, 1, 1, prefix="zz")
    name = made.table.name
    held = "acquired_token = gen_random_uuid(), acquired_at = now(), deliveries_count = 1"
    await run(made, f"update {name} set {held} where key like 'zz%'")
    began = time.perf_counter()
    async with working(made, tally, lease_ttl_seconds=5.0):
        await tally.done.wait()
    return time.perf_counter() - began


async def neighbour(made: Stage, *, crowded: bool) -> float:
    """p99 from commit to handler, in milliseconds, of a queue beside 200 keys of 2,000 timers in another."""
    waits: list[float] = []
    sent: dict[bytes, float] = {}

    async def handle(claim: Claim) -> Outcome:
        if claim.queue == "light":
            waits.append((time.perf_counter() - sent[claim.payload]) * 1000)
        return DONE

    if crowded:
        await fill(made, 200, 2000, LATER)
        await fill(made, 200, 1)
    async with working(made, handle, "orders", "light") as client:
        await asyncio.sleep(1)
        for number in range(300):
            body = str(number).encode()
            async with made.engine.begin() as connection:
                more = [Envelope(queue="orders", body=b"1", key=f"k{number % 200 + 1}")] if crowded else []
                light = Envelope(queue="light", body=body)
                await publish(connection, made.table, light, *more, wakeups=client.wakeups)
                sent[body] = time.perf_counter()
            await asyncio.sleep(0.02)
    return sorted(waits)[int(len(waits) * 0.99)]


async def snapshot(made: Stage, *, crowded: bool) -> float:
    """The last tenth of a drain of 4 deep keys by its first, with an old snapshot held or without."""
    each = 10_000
    await fill(made, 4, each)
    tally = Tally(4 * each)
    async with contextlib.AsyncExitStack() as stack:
        if crowded:
            await stack.enter_async_context(made.held_snapshot())
        async with working(made, tally):
            await tally.done.wait()
    tenth = len(tally.at) // 10
    first, last = tally.at[tenth] - tally.at[0], tally.at[-1] - tally.at[-tenth]
    return last / first


async def deep(made: Stage, *, crowded: bool) -> float:
    """Seconds for 20 keys of 200 with handlers of 10 ms, by one client with 4 executors or by two of them.

    Slow enough that the handlers are the limit, and not the processor that all share here.
    """
    tally = Tally(4_000)

    async def handle(claim: Claim) -> Outcome:
        await asyncio.sleep(0.01)
        return await tally(claim)

    await fill(made, 20, 200)
    began = time.perf_counter()
    async with working(made, handle, clients=2 if crowded else 1, max_workers=4, fetch_batch_size=10):
        await tally.done.wait()
    return time.perf_counter() - began


async def timers(made: Stage, *, crowded: bool) -> float:
    """Seconds for 100 messages of each of 20 keys, alone or behind 2,000 timers of each that wait."""
    if crowded:
        await fill(made, 20, 2000, LATER)
    await fill(made, 20, 100)
    tally = Tally(2000)
    began = time.perf_counter()
    async with working(made, tally):
        await tally.done.wait()
    return time.perf_counter() - began


Case = Callable[..., Awaitable[float]]
CASES: dict[str, Case] = {
    "resume": resumed,
    "killed": killed,
    "neighbour": neighbour,
    "snapshot": snapshot,
    "deep": deep,
    "timers": timers,
}


async def main() -> None:
    """Run the cases in turns and print."""
    options = argparse.ArgumentParser(prog="bench.crowding")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=",".join(CASES), help="names of cases")
    chosen = options.parse_args()
    print("| case | alone | crowded | ratio |\n|---|---|---|---|")
    async with stage() as made:
        for name in chosen.only.split(","):
            found: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(chosen.rounds):
                for crowded in (False, True):
                    await made.reset()
                    found[crowded].append(await CASES[name](made, crowded=crowded))
            alone, beside = statistics.median(found[False]), statistics.median(found[True])
            print(f"| {name} | {alone:.2f} | {beside:.2f} | {beside / alone:.2f} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
