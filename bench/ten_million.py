"""`python -m bench.ten_million`: what a message costs beside ten thousand rows, and beside ten million.

Everything in one run, on one server and in turns. Four figures for each case: microseconds on the clock, microseconds
that the server spent in statements (by its own log), pages that it touched and bytes of WAL that it wrote (which do not
depend on the machine). What counts is the ratio of large to small; it should be about 1. `--rows 200000` is a quick
try, `--only queue`, `--only log` or `--only inbox` a part. Filling the tables takes most of the time.
"""

import argparse
import asyncio
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.inbox_cases import clean_receipts, receive, receive_again
from bench.large_tables import GROUP, KEYED_QUEUE, KEYS, OLDEST_DAYS, QUEUE, Filled, LargeStage, large_stage
from faststream_outbox import Envelope
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker

SMALL = 10_000
MESSAGES, KEYED_MESSAGES, TOPIC_MESSAGES = 5000, 2000, 2000
EACH = 100
"""Messages of a transaction."""
LAGS = 20

BODY = b'{"order_id": 12345, "amount": 99.5}'
_DURATION = re.compile(rb"duration: ([\d.]+) ms")
# Without the values: a batch has hundreds.
_LOGGED = {"log_min_duration_statement": "0", "log_parameter_max_length": "0"}
_PAGES = """
    select coalesce(sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
                        + coalesce(toast_blks_hit + toast_blks_read, 0)), 0)
    from pg_statio_user_tables where relname like '{name}%'
"""
_WAL = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_OTHERS = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Spent:
    """What one unit of a case took."""

    clock: float
    statements: float
    pages: float
    wal: float


async def publish_queue(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Messages without keys."""
    await _publish(engine, filled, [Envelope(queue=QUEUE, body=BODY)] * MESSAGES)
    return MESSAGES


async def publish_keyed(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Messages with keys, two of each."""
    await _publish(
        engine,
        filled,
        [Envelope(queue=KEYED_QUEUE, body=BODY, key=f"fresh-{one % 1000}") for one in range(KEYED_MESSAGES)],
    )
    return KEYED_MESSAGES


async def _publish(engine: AsyncEngine, filled: Filled, envelopes: list[Envelope]) -> None:
    for start in range(0, len(envelopes), EACH):
        async with engine.begin() as connection:
            await publish(connection, filled.queue, *envelopes[start : start + EACH])


async def drain(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """A worker of the engine claims, handles and settles messages without keys."""
    return await _drained(engine, filled, QUEUE, MESSAGES)


async def drain_keyed(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """The same with keys, in a queue with timers of other keys."""
    return await _drained(engine, filled, KEYED_QUEUE, KEYED_MESSAGES)


async def _drained(engine: AsyncEngine, filled: Filled, queue: str, messages: int) -> int:
    done, left = asyncio.Event(), messages

    async def handle(claim: Claim) -> Outcome:
        nonlocal left
        left -= 1
        if not left:
            done.set()
        return DONE

    client = OutboxClient(engine, filled.queue, dlq_table=filled.dlq)
    worker = Worker(engine, filled.queue, queue, handle, client=client, max_workers=20, fetch_batch_size=EACH)
    await worker.start()
    await done.wait()
    await worker.stop()
    return messages


async def publish_topic(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Messages of a topic."""
    async with Outbox(engine, tables=filled.log) as outbox:
        for start in range(0, TOPIC_MESSAGES, EACH):
            messages = [OutboxMessage(f"orders/{one % KEYS}", {"order_id": one}) for one in range(start, start + EACH)]
            async with engine.begin() as connection:
                await outbox.publish(connection, *messages)
    return TOPIC_MESSAGES


async def lag(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """How far behind the group is that has all of the last messages before it; a unit is one question."""
    async with Outbox(engine, tables=filled.log) as outbox:
        for _ in range(LAGS):
            behind = sum(each.messages for each in await outbox.lag(GROUP))
            assert behind == TOPIC_MESSAGES, behind
    return LAGS


async def dispatch(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """The group that has read everything before reads the last messages."""
    left = TOPIC_MESSAGES

    async def handle(message: OutboxMessage) -> None:
        nonlocal left
        left -= 1

    async with Outbox(engine, tables=filled.log) as outbox:
        while left:
            await outbox.dispatch(handle, GROUP, batch_size=EACH)
    return TOPIC_MESSAGES


async def clean(engine: AsyncEngine, filled: Filled, number: int) -> int:
    """Delete what became too old since the last time."""
    async with Outbox(engine, tables=filled.log) as outbox:
        cleaned = await outbox.clean(older_than=timedelta(days=OLDEST_DAYS - number - 0.5))
    assert cleaned.messages, cleaned
    return cleaned.messages


Case = Callable[[AsyncEngine, Filled, int], Awaitable[int]]
CASES: dict[str, dict[str, Case]] = {
    "queue": {
        "publish, 100 a transaction": publish_queue,
        "claim, handle, settle": drain,
        "publish with keys, 100 a transaction": publish_keyed,
        "claim, handle, settle with keys": drain_keyed,
    },
    "log": {
        "publish to a topic, 100 a transaction": publish_topic,
        "lag(), a call": lag,
        "dispatch of the last messages": dispatch,
        "clean(), a message deleted": clean,
    },
    "inbox": {
        "receive a new message": receive,
        "receive a message again": receive_again,
        "clean(), a receipt deleted": clean_receipts,
    },
}


async def spent(stage: LargeStage, filled: Filled, name: str, case: Case, number: int) -> Spent:
    """Run a case on connections of its own, which report what they touched when they close."""
    pages, written = _PAGES.format(name=name), stage.server.log.stat().st_size
    before, position = await stage.number(pages), await stage.number(_WAL)
    engine = create_async_engine(stage.server.dsn(), connect_args={"server_settings": _LOGGED})
    began = time.perf_counter()
    units = await case(engine, filled, number)
    seconds = time.perf_counter() - began
    await engine.dispose()
    while True:
        if not await stage.number(_OTHERS):
            break
        await asyncio.sleep(0.02)
    touched, logged = await stage.number(pages) - before, await stage.number(_WAL) - position
    with stage.server.log.open("rb") as log:
        log.seek(written)
        milliseconds = sum(float(found) for found in _DURATION.findall(log.read()))
    return Spent(seconds / units * 1e6, milliseconds / units * 1e3, touched / units, logged / units)


Found = dict[tuple[str, str], list[Spent]]
"""By case and by size, a figure for each round."""


async def compared(stage: LargeStage, sizes: Mapping[str, Filled], cases: Mapping[str, Case], rounds: int) -> Found:
    """All cases in turns, on each size."""
    found: Found = {}
    # The first round is not counted: it reads from disk what the others find in memory.
    for number in range(rounds + 1):
        for label, case in cases.items():
            for name, filled in sizes.items():
                one = await spent(stage, filled, name, case, number)
                if number:
                    found.setdefault((label, name), []).append(one)
    return found


def cases_of(parts: Iterable[str]) -> dict[str, Case]:
    """The cases of these parts, in order."""
    return {label: case for part in parts for label, case in CASES[part].items()}


def printed(found: Found) -> str:
    """Medians and ratios as a table."""
    lines = [
        "| a message | clock, µs | large/small | statements, µs | large/small | pages | large/small "
        "| WAL | large/small |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for label in dict.fromkeys(label for label, _ in found):
        cells = [label]
        for figure in ("clock", "statements", "pages", "wal"):
            small, large = (
                statistics.median(getattr(one, figure) for one in found[label, name]) for name in ("small", "large")
            )
            cells += [f"{small:,.4g} → {large:,.4g}", f"{large / small:.2f}" if small else "–"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


async def main() -> None:
    """Fill, measure and print."""
    options = argparse.ArgumentParser(prog="bench.ten_million")
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=",".join(CASES), help="queue, log, inbox")
    chosen = options.parse_args()
    parts = chosen.only.split(",")
    began = time.perf_counter()
    async with large_stage() as stage:
        sizes = {
            name: await stage.filled(name, rows, set(parts))
            for name, rows in (("small", SMALL), ("large", chosen.rows))
        }
        large = sizes["large"]
        for part, table in (("queue", large.queue), ("log", large.log.log), ("inbox", large.inbox)):
            if part in parts:
                heap, indexes = await stage.sizes(table, large.rows)
                print(f"{part}: {heap:.0f} bytes a row, and {indexes:.0f} in indexes")
        found = await compared(stage, sizes, cases_of(parts), chosen.rounds)
    print("\n" + printed(found))
    print(f"\n{chosen.rows:,} rows against {SMALL:,}, {chosen.rounds} rounds, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    asyncio.run(main())
