"""A process of the upgrade tests: it makes tables, or publishes and works, with this package or with an earlier one.

`python -P upgrade_child.py tables|publish|work <dsn> <side> <lease>`; who publishes works too. It imports what 0.3,
0.19 and this version have in common and nothing of the tests: it runs where `faststream_outbox` is the earlier package.
It says `ready`, stops gracefully on SIGTERM, begins to hang in every handler on SIGUSR1, publishes no more from SIGUSR2
on, and ends at once when its standard input ends.

`sent` has a row for every message that was committed, written in its transaction; `handled` one for every run of a
handler, written on connections of its own.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import asyncpg
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import faststream_outbox
from faststream_outbox import ConstantRetry, OutboxBroker, make_outbox_table

QUEUE = "orders"
KINDS = ("plain", "plain", "again", "timer", "plain", "poison")
"""What becomes of a message: done, failed once, due later, failed for good."""
MOST_ATTEMPTS = 3
RETRY_SECONDS = 0.1
TIMER = timedelta(seconds=1)
PACE_SECONDS = 0.05
HANDLER_SECONDS = 0.02

_SENT = text("insert into sent (n, kind, id, due) select :n, :kind, id, next_attempt_at from outbox where id = :id")
_BEGUN = "insert into handled (n, side, pid) values ($1, $2, $3) returning seq"
_ENDED = "update handled set ended = clock_timestamp(), outcome = $2 where seq = $1"
_FAILED = "select exists (select from handled where n = $1 and outcome = 'failed')"


class WillNotDo(Exception):
    """A handler's failure."""


async def publish(broker: OutboxBroker, engine: AsyncEngine, name: str, end: asyncio.Event) -> None:
    """Publish a message of each kind in turn, each in a transaction."""
    for count, kind in zip(itertools.count(), itertools.cycle(KINDS), strict=False):
        if end.is_set():
            return
        number = f"{name}-{count}"
        timer: dict[str, Any] = {"activate_in": TIMER, "timer_id": number} if kind == "timer" else {}
        async with AsyncSession(engine) as session, session.begin():
            row = await broker.publish({"n": number, "kind": kind}, queue=QUEUE, session=session, **timer)
            await session.execute(_SENT, {"n": number, "kind": kind, "id": row})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(end.wait(), PACE_SECONDS)


def subscribe(broker: OutboxBroker, record: asyncpg.Pool, side: str, lease: float, hang: asyncio.Event) -> None:
    """Handle what comes, and keep a record of it."""

    @broker.subscriber(
        QUEUE,
        max_workers=4,
        lease_ttl_seconds=lease,
        min_fetch_interval=0.05,
        max_fetch_interval=0.2,
        retry_strategy=ConstantRetry(delay_seconds=RETRY_SECONDS, max_attempts=MOST_ATTEMPTS),
    )
    async def handle(body: dict[str, str]) -> None:
        number, kind = body["n"], body["kind"]
        run = await record.fetchval(_BEGUN, number, side, os.getpid())
        if hang.is_set():
            await asyncio.Event().wait()
        await asyncio.sleep(HANDLER_SECONDS)
        fails = kind == "poison" or (kind == "again" and not await record.fetchval(_FAILED, number))
        await record.execute(_ENDED, run, "failed" if fails else "done")
        if fails:
            raise WillNotDo(number)


def tables(metadata: MetaData) -> dict[str, Any]:
    """The tables as this version has them; 0.3 keeps no dead letters."""
    made = {"outbox_table": make_outbox_table(metadata)}
    if hasattr(faststream_outbox, "make_dlq_table"):
        made["dlq_table"] = faststream_outbox.make_dlq_table(metadata)
    return made


async def main(role: str, dsn: str, side: str, lease: str) -> None:
    """Play the role until it is told to end."""
    metadata = MetaData()
    end, hang, enough = asyncio.Event(), asyncio.Event(), asyncio.Event()
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"), pool_size=10)
    made = tables(metadata)
    if role == "tables":
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        await engine.dispose()
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: (enough.set(), end.set()))
    loop.add_signal_handler(signal.SIGUSR1, hang.set)
    loop.add_signal_handler(signal.SIGUSR2, enough.set)
    loop.add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    broker = OutboxBroker(engine, **made, logger=None)
    async with asyncpg.create_pool(dsn, min_size=1, max_size=4) as record:
        subscribe(broker, record, side, float(lease), hang)
        await broker.start()
        print("ready", flush=True)
        if role == "publish":
            await publish(broker, engine, f"{side}-{os.getpid()}", enough)
            print("published", flush=True)
        await end.wait()
        await (broker.stop() if hasattr(broker, "stop") else broker.close())
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
