"""Budgets: what one message may cost, in counts that are the same on every machine.

Statements come from the server's log, everything about WAL from `pg_waldump`, Python's part from a profile
hook that counts calls. `baseline.json` holds the most that each may be; `tests/bench` fails when one is
exceeded. Wake-ups are off: how many there are depends on time and not on messages. Checkpoints and vacuum
stay out of the way, so that WAL holds only what the messages cause.

`python -m bench.budgets` prints what is measured beside what is allowed; `--write` makes the baseline of it.
"""

import argparse
import asyncio
import contextlib
import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from faststream_outbox import Envelope, OutboxBroker
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer

BASELINE = Path(__file__).with_name("baseline.json")
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "checkpoint_timeout": "1d",
    "log_statement": "all",
}
QUIET: dict[str, Any] = {"notify": "off", "listen": False, "watch": False}
BODY = b'{"order_id": 12345, "amount": 99.5}'
MESSAGES = 3000
SINGLE = 500
"""Fewer where each has a transaction of its own."""
MARGIN = 1.05
"""What the baseline allows above what was measured when it was written; settling in groups varies a little."""
LOOSE = 1.25
"""The same for statements and calls, whose number also depends on how many messages a settle happens to find."""
LEAST = 0.02
"""Allowed where nothing was measured: the catalog may see a write or two."""

_STATEMENT = re.compile(rb"LOG:  (?:statement|execute [^:]*): ")
_RECORDS = re.compile(r"^(\w+)/([\w+]+)\s+(\d+) \(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one message took, as an average. Only `hot_share` is the better the larger it is."""

    statements: float
    wal_bytes: float
    wal_records: float
    index_writes: float
    rows_locked: float
    hot_share: float
    calls: float

    def over(self, allowed: Mapping[str, float]) -> list[str]:
        """A sentence for each budget that is exceeded."""
        broken = []
        for name, limit in allowed.items():
            spent = getattr(self, name)
            if spent < limit if name == "hot_share" else spent > limit:
                broken.append(f"{name} is {spent:.4g} a message, allowed is {limit:.4g}")
        return broken


class Ledger:
    """A server of its own with the tables, and the means to count what happens in it."""

    def __init__(self, server: PostgresServer, engine: AsyncEngine) -> None:
        self.server = server
        self.engine = engine
        metadata = MetaData()
        self.table = make_outbox_table(metadata)
        self.dlq_table = make_dlq_table(metadata)
        self.broker = OutboxBroker(engine, outbox_table=self.table, **QUIET)

    async def reset(self) -> None:
        """Empty tables, never analysed."""
        async with self.engine.begin() as connection:
            await connection.run_sync(self.table.metadata.drop_all)
            await connection.run_sync(self.table.metadata.create_all)

    async def backlog(self, messages: int, keys: int = 0) -> None:
        """Messages to drain; with `keys`, spread over so many."""
        names = [f"k{number % keys}" if keys else None for number in range(messages)]
        for start in range(0, messages, 1000):
            envelopes = [
                Envelope(queue="orders", body=BODY, headers={"content-type": "application/json"}, key=key)
                for key in names[start : start + 1000]
            ]
            async with self.engine.begin() as connection:
                await publish(connection, self.table, *envelopes)

    async def position(self) -> str:
        """Where WAL has got to; all before it is in its files."""
        async with self.engine.begin() as connection:
            reached = str((await connection.execute(text("select pg_current_wal_insert_lsn()::text"))).scalar())
            # Makes this transaction one whose commit flushes, also where the last record was of one that need not.
            await connection.execute(text("select pg_logical_emit_message(true, 'bench', '')"))
        return reached

    def records(self, start: str, end: str) -> dict[str, int]:
        """Records of WAL between two positions, by resource manager and kind."""
        dump = self.server.run(
            "pg_waldump", "-p", self.server.data / "pg_wal", "--start", start, "--end", end, "--stats=record"
        )
        return {f"{manager}/{kind}": int(count) for manager, kind, count in _RECORDS.findall(dump)}

    def logged(self) -> int:
        """Statements that the server's log names so far."""
        return len(_STATEMENT.findall(self.server.log.read_bytes()))


@contextlib.asynccontextmanager
async def ledger(server: PostgresServer) -> AsyncGenerator[Ledger, None]:
    """Tables and an engine in a server that was started with `SETTINGS`."""
    engine = create_async_engine(server.dsn())
    made = Ledger(server, engine)
    try:
        yield made
    finally:
        await engine.dispose()


class Calls:
    """Counts the calls of Python functions, resumptions of coroutines among them, while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def _hook(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.count += 1

    def __enter__(self) -> "Calls":
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


async def publish_one(made: Ledger, messages: int) -> None:
    """`broker.publish` in a transaction of its own on an AsyncSession."""
    sessions = async_sessionmaker(made.engine)
    for _ in range(messages):
        async with sessions() as session, session.begin():
            await made.broker.publish({"order_id": 12345, "amount": 99.5}, "orders", session=session)


async def publish_thousand(made: Ledger, messages: int) -> None:
    """`broker.publish_batch` of a thousand in one transaction."""
    sessions = async_sessionmaker(made.engine)
    for _ in range(messages // 1000):
        async with sessions() as session, session.begin():
            bodies = [{"order_id": 12345, "amount": 99.5}] * 1000
            await made.broker.publish_batch(*bodies, queue="orders", session=session)


async def drain_default(made: Ledger, messages: int) -> None:
    """A subscriber of the broker with default options; its access log is off, which writes and counts nothing."""
    done, handled = asyncio.Event(), 0
    broker = OutboxBroker(made.engine, outbox_table=made.table, logger=None, **QUIET)

    @broker.subscriber("orders")
    async def handle(body: dict[str, float]) -> None:
        nonlocal handled
        handled += 1
        if handled == messages:
            done.set()

    await broker.start()
    await done.wait()
    await broker.stop()


async def drain_engine(made: Ledger, messages: int) -> None:
    """A worker of the engine, claims of 100."""
    done, handled = asyncio.Event(), 0

    async def handle(claim: Claim) -> Outcome:
        nonlocal handled
        handled += 1
        if handled == messages:
            done.set()
        return DONE

    client = OutboxClient(made.engine, made.table, dlq_table=made.dlq_table, **QUIET)
    worker = Worker(made.engine, made.table, "orders", handle, client=client, fetch_batch_size=100)
    await worker.start()
    await done.wait()
    await worker.stop()


@dataclass(frozen=True, slots=True)
class Case:
    """Something whose cost has a budget."""

    run: Callable[[Ledger, int], Awaitable[None]]
    messages: int = MESSAGES
    drains: bool = False
    keys: int = 0


CASES = {
    "publish, one a transaction": Case(publish_one, SINGLE),
    "publish, 1,000 a transaction": Case(publish_thousand),
    "drain, defaults, access log off": Case(drain_default, drains=True),
    "drain, engine, claims of 100": Case(drain_engine, drains=True),
    "drain, engine, 300 keys": Case(drain_engine, drains=True, keys=300),
}


async def measured(made: Ledger, case: Case) -> Cost:
    """Run a case twice, once to count in the server and once to count Python's calls."""
    await _prepared(made, case)
    start, logged = await made.position(), made.logged()
    await case.run(made, case.messages)
    statements = made.logged() - logged
    end = await made.position()
    records = made.records(start, end)
    await _prepared(made, case)
    with Calls() as calls:
        await case.run(made, case.messages)
    hot = records.get("Heap/HOT_UPDATE", 0)
    updates = hot + records.get("Heap/UPDATE", 0)
    return Cost(
        statements=statements / case.messages,
        wal_bytes=(_bytes(end) - _bytes(start)) / case.messages,
        wal_records=sum(records.values()) / case.messages,
        index_writes=sum(count for kind, count in records.items() if kind.startswith("Btree/INSERT")) / case.messages,
        rows_locked=(records.get("Heap/LOCK", 0) + records.get("Heap2/LOCK_UPDATED", 0)) / case.messages,
        hot_share=hot / updates if updates else 1.0,
        calls=calls.count / case.messages,
    )


async def _prepared(made: Ledger, case: Case) -> None:
    await made.reset()
    if case.drains:
        await made.backlog(case.messages, case.keys)


def _bytes(position: str) -> int:
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def allowed() -> dict[str, dict[str, float]]:
    """The baseline."""
    found: dict[str, dict[str, float]] = json.loads(BASELINE.read_text())
    return found


def _limit(name: str, spent: float) -> float:
    if name == "hot_share":
        return math.floor(spent * 100 / MARGIN) / 100
    margin = LOOSE if name in {"statements", "calls"} else MARGIN
    return max(LEAST if name in {"index_writes", "rows_locked"} else 0.0, float(f"{spent * margin:.3g}"))


async def main() -> None:
    """Measure, print, and write on request."""
    options = argparse.ArgumentParser(prog="bench.budgets")
    options.add_argument("--write", action="store_true", help="make the baseline of what is measured")
    write = options.parse_args().write
    limits = {} if write else allowed()
    with PostgresServer.start(settings=SETTINGS) as server:
        await _compare(server, limits, write=write)
    if write:
        BASELINE.write_text(json.dumps(limits, indent=2) + "\n")


async def _compare(server: PostgresServer, limits: dict[str, dict[str, float]], *, write: bool) -> None:
    async with ledger(server) as made:
        for name, case in CASES.items():
            cost = await measured(made, case)
            if write:
                limits[name] = {each: _limit(each, spent) for each, spent in asdict(cost).items()}
            print(f"\n{name}")
            for each, spent in asdict(cost).items():
                print(f"  {each:<14}{spent:>12.4f}  allowed {limits[name][each]:>10.4g}")
            for sentence in cost.over(limits[name]):
                print(f"  EXCEEDED: {sentence}")


if __name__ == "__main__":
    asyncio.run(main())
