"""A publisher or a worker that runs with 0.19 and with this version: it uses what both have.

`python crew.py publish|work <dsn> <name> <pace>` says `ready`, works until its input ends, and prints what it did:
a publisher which messages it committed, when and after how long; a worker which it handled, when, and how long after
they were published. Started by `bench.rolling`, in the environment of either version.
"""

import asyncio
import json
import sys
import time
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table

QUEUE = "orders"
LEASE = 10.0


async def publish(broker: OutboxBroker, engine: AsyncEngine, name: str, pace: float, end: asyncio.Event) -> list[Any]:
    """Publish a message every `pace` seconds, each in a transaction."""
    done: list[Any] = []
    await broker.start()
    print("ready", flush=True)
    while not end.is_set():
        began = time.time()
        number = f"{name}-{len(done)}"
        async with AsyncSession(engine) as session, session.begin():
            await broker.publish({"n": number, "at": time.time()}, queue=QUEUE, session=session)
        done.append((number, began, time.time() - began))
        await asyncio.sleep(max(0.0, began + pace - time.time()))
    await broker.stop()
    return done


async def work(broker: OutboxBroker, name: str, end: asyncio.Event) -> list[Any]:
    """Handle what comes."""
    done: list[Any] = []

    @broker.subscriber(QUEUE, max_workers=4, lease_ttl_seconds=LEASE, max_fetch_interval=LEASE / 2)
    async def handle(body: dict[str, Any]) -> None:
        now = time.time()
        done.append((body["n"], now, now - body["at"]))

    await broker.start()
    print("ready", flush=True)
    await end.wait()
    await broker.stop()
    return done


async def main(role: str, dsn: str, name: str, pace: str) -> None:
    """Work until the input ends."""
    metadata, end = MetaData(), asyncio.Event()
    engine = create_async_engine(dsn, pool_size=10)
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq, logger=None)
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: end.set())
    done = await (publish(broker, engine, name, float(pace), end) if role == "publish" else work(broker, name, end))
    await engine.dispose()
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
