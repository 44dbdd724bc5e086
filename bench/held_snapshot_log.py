"""`python -m bench.held_snapshot_log`: what sequencing and publishing to a log cost under what others hold open.

`snapshot`: publish, look and tick beside a snapshot that somebody has held for so many ticks, against the same without
it, in turns on one server. `gaps`: a message beside a foreign transaction under which so many numbers were rolled back,
against one without any, and the one that follows its end; `owned`: the same, of a publisher that stays open. Times are
of this machine; their ratios are what counts.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from sqlalchemy import text

from bench.log_stage import LogStage, log_stage
from faststream_outbox.log import Outbox, OutboxMessage

ROUNDS = 200

# Numbers of which every second one is lost, as those of a transaction that was rolled back are.
_HOLES = """
    with x as materialized (select pg_current_xact_id()::text::bigint as xid)
    insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id)
    select n.position, 'orders/1', 7, '1', '{{}}', statement_timestamp(), x.xid
    from x, (select nextval('{log}_head_drawn_seq') as position, i from generate_series(1, 2 * {gaps}) i offset 0) n
    where n.i % 2 = 0
"""


async def publish(outbox: Outbox) -> None:
    """One message, committed."""
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, OutboxMessage("orders/1", 1))


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds that something takes."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def measured(outbox: Outbox) -> dict[str, float]:
    """Milliseconds of a publish, of a look, and of a tick that finds one message: medians, in turns."""
    sequencer = outbox.client.sequencer
    found: dict[str, list[float]] = {"publish": [], "look": [], "tick": []}
    for _ in range(ROUNDS):
        found["publish"].append(await timed(lambda: publish(outbox)))
        found["look"].append(await timed(sequencer.progress))
        found["tick"].append(await timed(sequencer.tick))
    return {name: median(times) for name, times in found.items()}


async def snapshot(stage: LogStage, ticks: int) -> None:
    """One log churns under a held snapshot; another one does not, and is measured beside it."""
    quiet, busy = await stage.log("quiet"), await stage.log("busy")
    for outbox in (quiet, busy):
        await publish(outbox)
        await outbox.client.sequencer.catch_up()
    async with stage.engine.connect() as holder:
        await holder.execution_options(isolation_level="REPEATABLE READ")
        await holder.execute(text("select count(*) from pg_class"))
        lost = max(1, ticks // 20)
        for number in range(ticks):
            if number % lost == 0:
                await lose(busy, 100)
            await busy.client.sequencer.tick()
        alone, beside = await measured(quiet), await measured(busy)
    for name, own in alone.items():
        ratio = beside[name] / own
        print(f"snapshot held for {ticks} ticks: {name:8} {own:7.2f} -> {beside[name]:7.2f} ms  {ratio:5.1f} x")


async def lose(outbox: Outbox, gaps: int) -> None:
    """Lose so many numbers."""
    async with outbox.engine.begin() as connection:
        await connection.execute(text(_HOLES.format(log=outbox.tables.log.name, gaps=gaps)))


async def gaps(stage: LogStage, count: int, *, owns: bool) -> None:
    """So many gaps while a transaction is open that draws no number, or may own any of them; and its end."""
    outbox = await stage.log("owned" if owns else "gaps")
    ticker = outbox.client.ticker

    async def deliver() -> None:
        """Publish, and tick until it is in a tick."""
        head = outbox.client.timeline.head
        await publish(outbox)
        while outbox.client.timeline.head == head:
            await ticker._once()

    await deliver()
    alone = median([await timed(deliver) for _ in range(50)])
    async with contextlib.AsyncExitStack() as stack:
        foreign = await stack.enter_async_context(stage.engine.connect())
        await foreign.execute(text("select pg_current_xact_id()"))
        if owns:
            await outbox.publish(foreign, OutboxMessage("orders/2", 1))
        await lose(outbox, count)
        filled = await timed(outbox.client.sequencer.catch_up)
        first = await timed(deliver)
        beside = []
        for _ in range(20):
            await asyncio.sleep(0.1)
            beside.append(await timed(deliver))
        await foreign.rollback()
    after = await timed(deliver)
    who = "publisher" if owns else "foreign transaction"
    print(f"{count} gaps, {who}: sequenced in {filled:.0f} ms, the first message behind them in {first:.1f} ms")
    print(f"{count} gaps, {who}: a message {alone:.2f} -> {median(beside):.2f} ms, at most {max(beside):.1f} ms")
    print(f"{count} gaps, {who}: the message after its end {after:.1f} ms")


async def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="snapshot,gaps,owned")
    parser.add_argument("--ticks", type=int, default=20_000)
    parser.add_argument("--gaps", type=int, default=1_000_000)
    asked = parser.parse_args()
    async with log_stage() as stage:
        if "snapshot" in asked.only:
            await snapshot(stage, asked.ticks)
        if "gaps" in asked.only:
            await gaps(stage, asked.gaps, owns=False)
        if "owned" in asked.only:
            await gaps(stage, asked.gaps, owns=True)


if __name__ == "__main__":
    asyncio.run(main())
