"""A process that a message ends: reads a group, writes down every run, and exits in the middle of one.

`python -m tests.faults.crash_child '<CrashPart as JSON>'`. Says on its standard output that it reads; ends gracefully
on SIGTERM, and at once when its standard input ends.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.schema import make_outbox_table
from tests.faults.child import READY, say
from tests.faults.log_scene import TOPIC, log_tables

GROUP = "billing"
LEASE_SECONDS = 1.0
SOON = ConstantRetry(delay_seconds=0.05, max_attempts=1000)


@dataclass(frozen=True, slots=True)
class CrashPart:
    """What a child plays; the message of this number ends it, at its first run or when it has failed once."""

    world: str
    way: str
    killer: int
    crash_limit: int
    fails_first: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Performer:
    """Handlers that keep a record, each on a connection in autocommit: a run is known although the process died."""

    def __init__(self, part: CrashPart) -> None:
        self._part = part
        self._record = psycopg.connect(part.world, autocommit=True)

    def run(self, number: int) -> None:
        self._record.execute("insert into handled (name, version, pid) values ('', %s, %s)", (number, os.getpid()))
        if number != self._part.killer:
            return
        rows = self._record.execute("select count(*) from handled where version = %s", (number,)).fetchall()
        if self._part.fails_first and rows[0][0] == 1:
            raise ValueError(number)
        os._exit(9)

    async def plainly(self, message: OutboxMessage) -> None:
        self.run(int(message.payload or 0))

    async def with_session(self, message: OutboxMessage, session: AsyncSession) -> None:
        self.run(int(message.payload or 0))


async def main(part: CrashPart) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    engine = create_async_engine(part.world.replace("postgresql://", "postgresql+asyncpg://"))
    performer, metadata = Performer(part), MetaData()
    tables = log_tables(metadata)
    say(READY)
    if part.way.startswith("topic"):
        broker = OutboxBroker(
            engine, outbox_table=make_outbox_table(metadata), dlq_table=None, log_tables=tables, logger=None
        )
        options: dict[str, Any] = {"lease_ttl_seconds": LEASE_SECONDS, "max_fetch_interval": 1.0}
        options |= {"topic": TOPIC, "group": GROUP, "crash_limit": part.crash_limit, "retry_strategy": SOON}

        @broker.subscriber(**options, batch=True, batch_size=100)
        async def handle(bodies: list[int]) -> None:
            for body in bodies:
                performer.run(body)

        await broker.start()
        await ended.wait()
        await broker.stop()
    else:
        outbox = Outbox(
            engine, tables=tables, lease_ttl_seconds=LEASE_SECONDS, crash_limit=part.crash_limit, retry_strategy=SOON
        )
        is_within = part.way == "transactional"
        subscriber: Any = performer.with_session if is_within else performer.plainly
        await outbox.run(subscriber, GROUP, TOPIC, poll_interval=0.2, stop_event=ended, transactional=is_within)
        await outbox.cleanup()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(CrashPart(**json.loads(sys.argv[1]))))
