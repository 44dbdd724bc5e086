"""See it work: `python -m examples.inbox`, on a machine that has nothing but Python.

Starts a private PostgreSQL and a private NATS, both from PyPI, and two consumers with an inbox. Every order is
published twice, and a consumer is killed five times. At the end each order has exactly one invoice, or the exit code
is 1.
"""

import asyncio
import contextlib
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import nats
from nats.js.api import StreamConfig
from nats.js.client import JetStreamContext
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from examples.inbox.consumer import STREAM, SUBJECT, inbox_table, invoices, metadata
from faststream_outbox.testing.postgres import PostgresServer

ORDERS, KILLS = 300, 5


async def start(*arguments: str) -> asyncio.subprocess.Process:
    """A consumer that works."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "examples.inbox.consumer", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def connected(address: str) -> nats.NATS:
    """A connection to NATS, as soon as it answers."""
    while True:
        with contextlib.suppress(OSError, nats.errors.Error):
            return await nats.connect(address, allow_reconnect=False, connect_timeout=1)
        await asyncio.sleep(0.05)


async def billed(engine: AsyncEngine) -> Counter[int]:
    """How many invoices each order has."""
    async with engine.connect() as connection:
        return Counter((await connection.execute(select(invoices.c.order_id))).scalars())


async def has_billed(engine: AsyncEngine, count: int) -> bool:
    """Whether so many orders have an invoice."""
    return len(await billed(engine)) >= count


async def is_drained(stream: JetStreamContext) -> bool:
    """Whether every message was acknowledged."""
    info = await stream.consumer_info(STREAM, "billing")
    return not info.num_pending and not info.num_ack_pending


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes: nobody tells."""
    while True:
        if await question():
            return
        await asyncio.sleep(0.02)


async def deliver(database: str, address: str) -> bool:
    """Publish, kill, and take account."""
    engine = create_async_engine(database)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    client = await connected(address)
    stream = client.jetstream()
    await stream.add_stream(StreamConfig(name=STREAM, subjects=[SUBJECT]))
    consumers = [await start(database, address) for _ in range(2)]
    kind = {"content-type": "application/json"}
    for number in range(2 * ORDERS):
        order = number // 2
        await stream.publish(SUBJECT, str(order).encode(), headers={**kind, "message_id": str(order)})
    for kill in range(1, KILLS + 1):
        await until(partial(has_billed, engine, ORDERS * kill // (KILLS + 1)))
        consumers[0].kill()
        await consumers.pop(0).wait()
        consumers.append(await start(database, address))
        print(f"killed a consumer; {len(await billed(engine))} of {ORDERS} orders have an invoice")
    await until(partial(is_drained, stream))
    for consumer in consumers:
        consumer.kill()
        await consumer.wait()
    invoiced = await billed(engine)
    async with engine.connect() as connection:
        receipts = len((await connection.execute(select(inbox_table.c.message_id))).all())
    await client.close()
    await engine.dispose()
    print(f"{2 * ORDERS} messages, {receipts} receipts, {invoiced.total()} invoices for {len(invoiced)} orders")
    return invoiced == Counter(range(ORDERS))


async def main() -> int:
    """Start the servers, and end them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = Path(sys.executable).with_name("nats-server")
    with tempfile.TemporaryDirectory() as directory, PostgresServer.start() as postgres:
        options = ("-a", "127.0.0.1", "-p", port, "-js", "-sd", directory)
        server = await asyncio.create_subprocess_exec(program, *options, stderr=asyncio.subprocess.DEVNULL)
        try:
            database = postgres.dsn().replace("postgresql://", "postgresql+asyncpg://")
            is_right = await deliver(database, f"nats://127.0.0.1:{port}")
        finally:
            server.kill()
            await server.wait()
    print("every order has exactly one invoice" if is_right else "this does not add up")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
