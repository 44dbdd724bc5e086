"""`python -m bench`: every scenario, ours and the raw driver in turn, medians of the rounds and their ratio.

Options: `--rounds 3`, `--messages 50000`, `--only drain` (a part of a scenario's name).
"""

import argparse
import asyncio
import platform
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from statistics import median

from sqlalchemy import text

from bench import drain, publishing
from bench.stage import SETTINGS, Stage, stage

Run = Callable[[Stage, int], Awaitable[float]]


async def _drained(made: Stage, messages: int, *, keys: int = 0, batch: int = 100, **options: object) -> float:
    await drain.backlog(made, messages, keys=keys)
    return await drain.ours(made, messages, fetch_batch_size=batch, **options)


async def _raw(made: Stage, messages: int) -> float:
    await drain.backlog(made, messages)
    return await drain.raw(made, messages, 100)


async def _defaults(made: Stage, messages: int) -> float:
    return await _drained(made, messages // 5, batch=10)


async def _raw_by_ten(made: Stage, messages: int) -> float:
    await drain.backlog(made, messages // 5)
    return await drain.raw(made, messages // 5, 10)


async def _with_others(made: Stage, messages: int) -> float:
    await made.scheduled_elsewhere(1_000_000)
    return await _drained(made, messages)


async def _held(made: Stage, messages: int) -> float:
    async with made.held_snapshot():
        return await _drained(made, messages)


SCENARIOS: list[tuple[str, Run, Run | None, int]] = [
    ("publish one by one (raw asyncpg)", publishing.one_by_one, publishing.raw_one_by_one, 2_000),
    ("publish one by one (bare INSERT, same session)", publishing.one_by_one, publishing.bare_session, 2_000),
    ("publish 1,000 a transaction (raw unnest)", publishing.thousands, publishing.raw_thousands, 50_000),
    ("drain, claims of 100 (raw claim + delete of 100)", _drained, _raw, 50_000),
    ("drain, default options (raw claim + delete of 10)", _defaults, _raw_by_ten, 50_000),
    ("drain, a million rows of other queues (without them)", _with_others, _drained, 50_000),
    ("drain, old snapshot held (without it)", _held, _drained, 50_000),
    ("drain, 10,000 keys (keyless)", lambda s, n: _drained(s, n, keys=10_000), _drained, 50_000),
    ("drain, 200 keys (keyless)", lambda s, n: _drained(s, n, keys=200), _drained, 50_000),
]


async def _counts(made: Stage, messages: int) -> None:
    await made.reset()
    await drain.backlog(made, messages)
    before = await made.counts()
    await drain.ours(made, messages, fetch_batch_size=100)
    spent = await made.counts() - before
    print(
        f"\nper message, drain by 100: {spent.transactions / messages:.4f} statements, "
        f"{spent.wal_bytes / messages:.0f} WAL bytes, {spent.wal_records / messages:.2f} WAL records, "
        f"HOT share {spent.hot_updates / max(1, spent.updates):.3f}"
    )


async def main() -> None:
    """Run and print."""
    options = argparse.ArgumentParser(prog="bench")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0, help="fraction of each scenario's messages")
    options.add_argument("--only", default="", help="scenarios whose name contains this")
    chosen = options.parse_args()
    async with stage() as made:
        async with made.engine.connect() as connection:
            version = (await connection.execute(text("show server_version"))).scalar()
        print(f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, PostgreSQL {version}, {SETTINGS}\n")
        print(f"{'messages a second':<58}{'ours':>10}{'other':>10}{'ratio':>8}")
        for name, ours, other, messages in SCENARIOS:
            if chosen.only not in name:
                continue
            rates: tuple[list[float], list[float]] = ([], [])
            for _ in range(chosen.rounds):
                for run, found in ((ours, rates[0]), (other, rates[1])):
                    if run is not None:
                        await made.reset()
                        found.append(await run(made, int(messages * chosen.scale)))
            a, b = median(rates[0]), median(rates[1] or [0.0])
            print(f"{name:<58}{a:>10,.0f}{b:>10,.0f}{a / b if b else 0:>8.2f}", flush=True)
        await _counts(made, int(20_000 * chosen.scale))


asyncio.run(main())
