"""`python -m bench.log_latency <dsn> <rate> <seconds>`: publishes at a steady rate from a process of its own.

Nobody in the reader's process hears of these commits, and no NOTIFY is sent: the reader finds them by itself. Each
message carries the time just before its transaction began. `measured` starts this process and reads what it sends.
"""

import asyncio
import sys
import time

import asyncpg
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from bench.log_reading import fresh_group
from bench.log_stage import LogStage
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables

LOG = "light"


async def measured(stage: LogStage, rate: int, seconds: float) -> list[float]:
    """Seconds from before each transaction to its handler, sorted."""
    outbox = await stage.log(LOG)
    wanted = int(rate * seconds)
    latencies: list[float] = []
    stop = asyncio.Event()

    async def handle(message: OutboxMessage) -> None:
        latencies.append(time.time() - message.payload["at"])
        if len(latencies) == wanted:
            stop.set()

    running = asyncio.create_task(outbox.run(handle, fresh_group(), stop_event=stop))
    arguments = (sys.executable, "-m", "bench.log_latency", stage.dsn, str(rate), str(seconds))
    publisher = await asyncio.create_subprocess_exec(*arguments)
    try:
        async with asyncio.timeout(seconds + 30):
            await running
    finally:
        if publisher.returncode is None:
            publisher.kill()
        await publisher.wait()
    return sorted(latencies)


async def _publish(dsn: str, rate: int, seconds: float) -> None:
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    outbox = Outbox(engine, tables=make_log_tables(MetaData(), LOG, f"{LOG}_offsets"))
    connection = await asyncpg.connect(dsn)
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        at = time.time()
        async with connection.transaction():
            await outbox.publish(connection, OutboxMessage(f"orders/{number}", {"at": at}))
    await connection.close()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(_publish(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
