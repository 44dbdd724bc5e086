"""What operators and maintenance cost on a large log, beside what they cost on a small one.

    python -m bench.log_maintenance [--rounds 3] [--only clean,blocked,lag,slots,seek,ticks] [--scale 1.0]

Each case is run on a small log and on a large one in turns, on one server; read the ratio. The large log has a million
messages; 300,000 of them are deferred for `clean`, a million are parked for `blocked`, and the group stands at the
beginning with 64 spans for `lag` and `slots`. `seek` looks for the second event_id, `ticks` deletes ticks behind one
parked message.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession

from bench.log_stage import LogStage, log_stage
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox.log import Outbox, make_log_tables

SMALL = 1000
NOW = timedelta(0)


@dataclass(frozen=True, slots=True)
class Shape:
    """A log to measure on."""

    messages: int
    per_tick: int = 100
    spans: int = 1
    is_read: bool = True
    """Whether the group has read everything, or nothing."""
    deferred: int = 0
    parked: int = 0


async def made(stage: LogStage, name: str, shape: Shape) -> Outbox:
    """A log of this shape, sequenced, with one group, as the library would have left it."""
    outbox = Outbox(stage.engine, tables=make_log_tables(MetaData(), name, f"{name}_offsets"))
    await outbox.setup()
    stage.logs.append(outbox)
    ticks = shape.messages // shape.per_tick
    at = (ticks, shape.messages) if shape.is_read else (0, 0)
    width = 256 // shape.spans
    deferral = f"insert into {name}_deferred (consumer_group, uri, position, tick, slot, key, state, due)"
    for statement in (
        f"insert into {name} (position, uri, slot, payload, metadata, event_id, created_at, transaction_id)"
        f" select n, 'k/' || n % 5000, n % 256, '1', '{{}}', lpad(n::text, 32, '0')::uuid, now(), 1"
        f" from generate_series(1, {shape.messages}) n",
        f"insert into {name}_ticks (tick, lows, highs, count) select n, array[(n - 1) * {shape.per_tick} + 1],"
        f" array[n * {shape.per_tick}], {shape.per_tick} from generate_series(1, {ticks}) n",
        f"select setval('{name}_head_drawn_seq', {shape.messages})",
        f"insert into {name}_offsets (consumer_group, uri, lo, hi, tick, position, epoch)"
        f" select 'g', '', s * {width}, s * {width} + {width - 1}, {at[0]}, {at[1]}, 1"
        f" from generate_series(0, {shape.spans - 1}) s",
        f"{deferral} select 'g', '', n, n / {shape.per_tick} + 1, n % 256, 'k/' || n % 100, 'deferred', now()"
        f" from generate_series(1, {shape.deferred}) n",
        f"{deferral} select 'g', '', n, n / {shape.per_tick} + 1, n % 256, 'k/' || n % 5000, 'parked', null"
        f" from generate_series(1, {shape.parked}) n",
    ):
        async with stage.engine.begin() as connection:
            await connection.execute(text(statement))
    # Makes the head, by the ticks.
    await outbox.client.sequencer.catch_up()
    await stage.settle()
    return outbox


async def cleaned(outbox: Outbox) -> None:
    """Retention."""
    await outbox.clean(older_than=NOW)


async def arranged(outbox: Outbox) -> None:
    """What a member does every quarter of its lease."""
    reader = Reader.of(outbox.client, Group("g", ""), ReadOptions())
    await reader.arrange()
    await reader.member.leases.give_back()


async def lag(outbox: Outbox) -> None:
    """What every span has not read."""
    await outbox.lag("g")


async def by_slot(outbox: Outbox) -> None:
    """What every slot has not read."""
    await outbox.lag_by_slot("g")


async def sought(outbox: Outbox) -> None:
    """A seek to a message at the beginning."""
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.seek(session, UUID(f"{2:032}"), "g")


Work = Callable[[Outbox], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, on which logs."""

    work: Work
    small: Shape
    large: Shape
    is_once: bool = False
    """Whether a second time on the same log would find nothing left to do."""


def cases(scale: float) -> dict[str, Case]:
    """The cases, with the large logs at this scale."""
    million, deferred = int(1_000_000 * scale), int(300_000 * scale)
    small = Shape(SMALL)
    unread = Shape(SMALL, spans=64, is_read=False)
    return {
        "clean": Case(cleaned, small, Shape(2 * deferred, deferred=deferred), is_once=True),
        "ticks": Case(cleaned, small, Shape(deferred, per_tick=1, parked=1), is_once=True),
        "blocked": Case(arranged, small, Shape(million, parked=million)),
        "lag": Case(lag, unread, Shape(million, spans=64, is_read=False)),
        "slots": Case(by_slot, unread, Shape(million, spans=64, is_read=False)),
        "seek": Case(sought, small, Shape(million, per_tick=1)),
    }


async def seconds(work: Work, outbox: Outbox) -> float:
    """How long the work takes; what opens connections is not counted."""
    await outbox.client.operator_connection.open()
    await outbox.client.connection.open()
    began = time.perf_counter()
    await work(outbox)
    return time.perf_counter() - began


async def main() -> None:
    """Run the cases in turns and print."""
    options = argparse.ArgumentParser(prog="bench.log_maintenance")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--only", default="", help="names of cases")
    chosen = options.parse_args()
    known = cases(chosen.scale)
    print("| case | small, ms | large, ms | ratio |\n|---|---|---|---|")
    async with log_stage() as stage:
        for name in chosen.only.split(",") if chosen.only else known:
            case = known[name]
            found: dict[str, list[float]] = {"small": [], "large": []}
            logs: dict[str, Outbox] = {}
            for turn in range(1 if case.is_once else chosen.rounds):
                for size, shape in (("small", case.small), ("large", case.large)):
                    if size not in logs:
                        logs[size] = await made(stage, f"{name}_{size}_{turn}", shape)
                    found[size].append(1000 * await seconds(case.work, logs[size]))
            small, large = (statistics.median(found[size]) for size in ("small", "large"))
            print(f"| {name} | {small:.1f} | {large:.1f} | {large / small:.1f} |", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
