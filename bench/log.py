"""`python -m bench.log`: the ordered log against bare drivers on the same tables, and against its targets.

Everything in one run on one server, in interleaved rounds of which the median counts, because a machine's rates
move by a factor of two within minutes. Options: `--scale 0.1` for smaller numbers of messages, `--rounds 3`.
"""

import argparse
import asyncio
import os
from dataclasses import dataclass

from bench import log_publishing, log_reading
from bench.log_latency import measured
from bench.log_stage import LogStage, Rates, log_stage

SMALL = 20_000
LARGE = 1_000_000
LIGHT_RATE = 20
LIGHT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: what was measured by whom, and what it should be."""

    what: str
    ours: float
    unit: str
    asyncpg: float | None = None
    psycopg: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether there is no target, or it is reached."""
        return (self.least is None or self.ours >= self.least) and (self.most is None or self.ours < self.most)

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        target = f">= {_number(self.least)}" if self.least is not None else ""
        target = f"< {_number(self.most)}" if self.most is not None else target
        verdict = ("met" if self.is_met else "MISSED") if target else ""
        ratio = f"{self.ours / self.asyncpg:.2f}" if self.asyncpg else ""
        numbers = (_number(self.ours), _number(self.asyncpg), _number(self.psycopg), ratio)
        return (self.what, self.unit, *numbers, target, verdict)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


HEADINGS = ("what", "unit", "ours", "asyncpg", "psycopg", "ours/asyncpg", "target", "")


async def publishing(stage: LogStage, rates: Rates, rounds: int, scale: float) -> None:
    """Transactions of one and of a hundred messages."""
    outbox = await stage.log("published")
    for _ in range(rounds):
        for each, transactions in ((100, int(200 * scale)), (1, int(2000 * scale))):
            for name in ("through_sessions", "through_asyncpg", "by_asyncpg", "by_psycopg"):
                publish = getattr(log_publishing, name)
                rates.add(f"publish {each} {name}", await publish(stage, outbox, max(10, transactions), each))


async def reading(stage: LogStage, rates: Rates, rounds: int, scale: float) -> None:
    """The same number of messages from a small log and from a large one, in turn."""
    small, large = int(SMALL * scale), int(LARGE * scale)
    logs = {"small": await stage.log("small", small), "large": await stage.log("large", large)}
    for name, messages in (("small", small), ("large", large)):
        rates.add(f"sequence {name}", await log_reading.sequenced(logs[name], messages))
    await stage.settle()
    for outbox in logs.values():
        # The first statements of a connection are planned, and the first pages are read from disk.
        await log_reading.dispatched(outbox, small, 1000)
        await log_reading.by_asyncpg(stage, outbox, small, 1000)
    for _ in range(rounds):
        for batch in (1000, 100):
            for name, outbox in logs.items():
                rate, busy = await log_reading.dispatched(outbox, small, batch)
                rates.add(f"dispatch {batch} {name}", rate)
                rates.add(f"busy {batch}", busy)
                rates.add(f"asyncpg {batch} {name}", await log_reading.by_asyncpg(stage, outbox, small, batch))
                rates.add(f"psycopg {batch} {name}", await log_reading.by_psycopg(stage, outbox, small, batch))
        for concurrency in (1, 4):
            rates.add(f"run {concurrency}", await log_reading.run(logs["small"], small, concurrency))
        rates.add("iterate", await log_reading.iterated(logs["small"], small))
    rates.add("dispatch all", (await log_reading.dispatched(logs["large"], large, 1000))[0])
    times = await log_reading.fetch_times(logs["large"], large, 100, 500)
    rates.add("fetch p50", times[len(times) // 2] * 1000)
    rates.add("fetch p99", times[int(len(times) * 0.99)] * 1000)


async def latency(stage: LogStage, rates: Rates, scale: float) -> None:
    """Light load from another process."""
    times = await measured(stage, LIGHT_RATE, max(3.0, LIGHT_SECONDS * scale))
    rates.add("latency p50", times[len(times) // 2] * 1000)
    rates.add("latency p99", times[int(len(times) * 0.99)] * 1000)
    rates.add("latency max", times[-1] * 1000)


def lines(rates: Rates, scale: float) -> list[Line]:
    """The table."""
    small, large = f"{int(SMALL * scale):,}", f"{int(LARGE * scale):,}"
    table = []
    for each in (100, 1):
        by_hand = (rates[f"publish {each} by_asyncpg"], rates[f"publish {each} by_psycopg"])
        for name, how in (("through_sessions", "AsyncSession"), ("through_asyncpg", "asyncpg connection")):
            what = f"publish {each} a transaction, {how}"
            table.append(Line(what, rates[f"publish {each} {name}"], "messages/s", *by_hand))
    for name, backlog in (("small", small), ("large", large)):
        table.append(Line(f"sequence {backlog}", rates[f"sequence {name}"], "rows/s"))
    for batch, least in ((1000, 40_000.0), (100, None)):
        for name, backlog in (("small", small), ("large", large)):
            by_hand = (rates[f"asyncpg {batch} {name}"], rates[f"psycopg {batch} {name}"])
            # A hundred times what was published for a million, five times for twenty thousand.
            wanted = None if least is None else least if name == "small" else 33_700.0
            what = f"dispatch by {batch}, backlog of {backlog}"
            table.append(Line(what, rates[f"dispatch {batch} {name}"], "messages/s", *by_hand, least=wanted))
        ratio = rates[f"dispatch {batch} large"] / rates[f"dispatch {batch} small"]
        table.append(Line(f"dispatch by {batch}, large against small", ratio, "", least=0.8))
        table.append(Line(f"dispatch by {batch}, time of the client's CPU", rates[f"busy {batch}"], "us/message"))
    table += [
        Line(f"dispatch all of {large} by 1000", rates["dispatch all"], "messages/s"),
        Line(f"run, concurrency 1, {small}", rates["run 1"], "messages/s"),
        Line(f"run, concurrency 4, {small}", rates["run 4"], "messages/s"),
        Line(f"async for, {small}", rates["iterate"], "messages/s"),
        Line(f"fetch of 100 at {large}, p50", rates["fetch p50"], "ms", most=1.0),
        Line(f"fetch of 100 at {large}, p99", rates["fetch p99"], "ms"),
        Line(f"latency at {LIGHT_RATE} a second, p50", rates["latency p50"], "ms", most=10.0),
        Line(f"latency at {LIGHT_RATE} a second, p99", rates["latency p99"], "ms", most=50.0),
        Line(f"latency at {LIGHT_RATE} a second, max", rates["latency max"], "ms"),
    ]
    return table


def printed(table: list[Line]) -> str:
    """The table as text."""
    rows = [HEADINGS, *(line.cells() for line in table)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 or column > 5 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


async def main() -> None:
    """Measure everything and print it."""
    options = argparse.ArgumentParser(prog="bench.log")
    options.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    rates = Rates()
    before = os.getloadavg()[0]
    async with log_stage() as stage:
        await publishing(stage, rates, chosen.rounds, chosen.scale)
        await reading(stage, rates, chosen.rounds, chosen.scale)
        await latency(stage, rates, chosen.scale)
    print(printed(lines(rates, chosen.scale)))
    print(f"load of the machine before {before:.1f}, after {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")


if __name__ == "__main__":
    asyncio.run(main())
