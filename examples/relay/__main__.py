"""See it work: `python -m examples.relay`, on a machine that has nothing but Python and this package's `dev` extra.

Starts a private PostgreSQL and a NATS server from its wheel. Orders are placed, each with its event in one transaction,
while a relay sends the events to a JetStream stream. Half-way NATS is ended as by a power cut, and comes back. At the
end every event is in the stream, in order per customer, or the exit code is 1.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import nats
from faststream import FastStream
from faststream.nats import NatsBroker
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox.events import RelayDown, RelayUp
from faststream_outbox.testing.postgres import PostgresServer

ORDERS, CUSTOMERS = 600, 20


class Nats:
    """A NATS server with JetStream, under one address."""

    def __init__(self, directory: str) -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it."""
        program = Path(sys.executable).parent / "nats-server"
        where = ["-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", self._directory]
        self._process = subprocess.Popen([program, *where], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """End it as by a power cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def stored(url: str) -> list[tuple[int, int]]:
    """What is in the stream: customers and numbers of orders, in its order."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        last = (await stream.stream_info("shop")).state.last_seq
        bodies = [(await stream.get_msg("shop", number)).data or b"" for number in range(1, last + 1)]
    finally:
        await client.close()
    return [(order["customer"], order["number"]) for order in map(json.loads, bodies)]


async def main(address: str, server: Nats) -> bool:
    """Run the shop; whether all arrived in order."""
    metadata = MetaData()
    engine = create_async_engine(address.replace("postgresql://", "postgresql+asyncpg://"))
    outbox = make_outbox_table(metadata)
    broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=make_dlq_table(metadata))
    other = NatsBroker(server.url, max_reconnect_attempts=-1, reconnect_time_wait=1, logger=None)
    broker.relay("orders", to=other.publisher("shop.orders", stream="shop"))
    broker.client.events.subscribe(lambda event: print("NATS is down; orders are placed all the same."), RelayDown)
    broker.client.events.subscribe(lambda event: print("NATS is back."), RelayUp)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    async with FastStream(broker, other, logger=None):
        for number in range(ORDERS):
            if number == ORDERS // 2:
                server.kill()
            elif number == ORDERS * 3 // 4:
                server.start()
            customer = number % CUSTOMERS
            async with AsyncSession(engine) as session, session.begin():
                order = {"customer": customer, "number": number}
                await broker.publish(order, "orders", key=f"customer-{customer}", session=session)
        async with asyncio.timeout(60):
            while True:
                async with engine.connect() as connection:
                    if (await connection.execute(outbox.select().limit(1))).first() is None:
                        break
                await asyncio.sleep(0.1)
    await engine.dispose()
    arrived = await stored(server.url)
    by_customer: dict[int, list[int]] = defaultdict(list)
    for customer, number in arrived:
        by_customer[customer].append(number)
    in_order = all(numbers == sorted(numbers) for numbers in by_customer.values())
    print(f"{ORDERS} orders placed, {len(arrived)} events in the stream, order per customer: {in_order}.")
    return in_order and sorted(number for _, number in arrived) == [*range(ORDERS)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, PostgresServer.start() as postgres:
        far_end = Nats(directory)
        far_end.start()
        try:
            is_well = asyncio.run(main(postgres.dsn(), far_end))
        finally:
            far_end.kill()
    sys.exit(not is_well)
