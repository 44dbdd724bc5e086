"""`python -m bench.crowd_of_members`: what members of other groups cost a busy topic, as ratios within one run.

`beside` is a topic of 16 messages a second, alone and beside 80 members of other groups in the same process that have
nothing to read; `busy` is the same with messages of theirs that come now and then. `start` is how many statements it
takes until so many members hold their slots. Statements are counted where the log's connections send them.

`--only beside,start` runs a part.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from bench.log_stage import LogStage, log_stage
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.log import Delivery, Outbox, OutboxMessage
from faststream_outbox.queue import DONE, Outcome

RATE = 16
SECONDS = 6.0
MEMBERS = 80


@contextlib.contextmanager
def counted(outbox: Outbox) -> Generator[Counter[str]]:
    """Statements by name that the log's own connections send meanwhile."""
    sent: Counter[str] = Counter()
    connections: list[Any] = [outbox.client.connection, outbox.client._tick_connection]
    kept = [(connection.fetch, connection.fetch_each) for connection in connections]

    def counting(connection: Any, fetch: Any, fetch_each: Any) -> None:
        async def one(statement: Statement, values: Mapping[str, Any]) -> Any:
            sent[statement.name] += 1
            return await fetch(statement, values)

        async def each(steps: Any, **options: Any) -> Any:
            sent.update(statement.name for statement, _ in steps)
            return await fetch_each(steps, **options)

        connection.fetch, connection.fetch_each = one, each

    for connection, (fetch, fetch_each) in zip(connections, kept, strict=True):
        counting(connection, fetch, fetch_each)
    try:
        yield sent
    finally:
        for connection, (fetch, fetch_each) in zip(connections, kept, strict=True):
            connection.fetch, connection.fetch_each = fetch, fetch_each


async def idle(_: Delivery) -> Outcome:
    """Handles what comes by the way."""
    return DONE


@contextlib.asynccontextmanager
async def crowd(outbox: Outbox, members: int, *, groups: int | None = None) -> AsyncGenerator[list[LogWorker]]:
    """So many members of groups with topics of their own, once all of them hold slots."""
    count = groups or members
    workers = [
        LogWorker(
            outbox.client,
            Group(f"idle-{number}", f"quiet-{number}"),
            idle,
            options=ReadOptions(),
            members=members // count,
        )
        for number in range(count if members else 0)
    ]
    for worker in workers:
        await worker.start()
    members = [consumer.member for worker in workers for consumer in worker.consumers]
    while sum(member.leases.size for member in members) < 256 * len(workers):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.02)
    try:
        yield workers
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))


async def put(outbox: Outbox, uri: str, payload: Any) -> None:
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.publish(session, OutboxMessage(uri, payload))


async def latency(made: LogStage, name: str, members: int, *, quiet: bool) -> tuple[float, Counter[str]]:
    """The median of milliseconds from before a transaction to its handler, and the statements."""
    outbox = await made.log(name)
    waits: list[float] = []
    wanted, done = int(RATE * SECONDS), asyncio.Event()

    async def handle(delivery: Delivery) -> Outcome:
        waits.append((time.perf_counter() - delivery.message.payload["at"]) * 1000)
        if len(waits) == wanted:
            done.set()
        return DONE

    busy = LogWorker(outbox.client, Group("busy", "orders"), handle, options=ReadOptions())
    await busy.start()
    async with crowd(outbox, members):
        with counted(outbox) as sent:
            for number in range(wanted):
                await put(outbox, f"orders/{number % 50}", {"at": time.perf_counter()})
                if not quiet and members:
                    await put(outbox, f"quiet-{number % members}", number)
                await asyncio.sleep(1 / RATE)
            await asyncio.wait_for(done.wait(), 60)
    await busy.stop()
    await outbox.cleanup()
    return statistics.median(waits), sent


async def beside(made: LogStage, rounds: int, *, quiet: bool = True) -> None:
    found: dict[int, list[float]] = {0: [], MEMBERS: []}
    sent: dict[int, Counter[str]] = {}
    for turn in range(rounds):
        for members in (0, MEMBERS):
            p50, sent[members] = await latency(made, f"beside_{quiet}_{turn}_{members}".lower(), members, quiet=quiet)
            found[members].append(p50)
    alone, crowded = (statistics.median(found[members]) for members in (0, MEMBERS))
    what = f"{MEMBERS} members beside, {'quiet' if quiet else 'busy'}"
    print(f"{what}: p50 {alone:.1f} -> {crowded:.1f} ms, x {crowded / alone:.2f}")
    for members, names in sent.items():
        own = {name: count for name, count in sorted(names.items()) if name not in ("progress", "lock_head", "tick")}
        print(f"  {members:>3} members: {sum(own.values()) / SECONDS:.0f} statements/s: {own}", flush=True)


async def start(made: LogStage) -> None:
    for members, groups in ((50, 50), (100, 100), (400, 400), (400, 4)):
        outbox = await made.log(f"start_{members}_{groups}")
        began = time.perf_counter()
        with counted(outbox) as sent:
            async with crowd(outbox, members, groups=groups):
                took = time.perf_counter() - began
                total = sum(sent.values())
                names = dict(sorted(sent.items()))
        ending = sum(sent.values()) - total
        print(
            f"{members} members of {groups} groups: {took:.1f} s, {total} statements to start, {ending} to stop",
            flush=True,
        )
        print(f"  {names}", flush=True)
        await outbox.cleanup()


async def main() -> None:
    """Run the parts and print."""
    options = argparse.ArgumentParser(prog="bench.crowd_of_members")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default="beside,busy,start")
    chosen = options.parse_args()
    parts = chosen.only.split(",")
    async with log_stage() as made:
        if "beside" in parts:
            await beside(made, chosen.rounds)
        if "busy" in parts:
            await beside(made, chosen.rounds, quiet=False)
        if "start" in parts:
            await start(made)


if __name__ == "__main__":
    asyncio.run(main())
