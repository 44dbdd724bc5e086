"""A process of the log's fault tests: reads a group and does something, or only sequences.

`python -m tests.faults.log_child '<LogPart as JSON>'`. Says on its standard output where it is, one word a line;
ends in its next handler on SIGUSR1, and gracefully on SIGTERM.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.events import SlotsHeld
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.schema import make_outbox_table
from tests.faults.child import READY, Told, hang_at, say, until_told
from tests.faults.log_scene import TOPIC, log_tables

EXITED = 3
"""The exit code of a child that ended in the middle of a batch."""


@dataclass(frozen=True, slots=True)
class LogPart(Told):
    """What a child plays."""

    world: str
    record: str
    seed: int
    group: str = ""
    """Empty sequences only, as often as it can."""
    transactional: bool = False
    driver: str = "asyncpg"
    concurrency: int = 1
    poll_interval: float = 0.5
    hang: str | None = None
    """`commit` (with everything written in the transaction, and nothing committed), or `tick`."""
    shortest: float = 0.0
    longest: float = 0.0
    """Seconds that a handler takes at least and at most."""
    failures: float = 0.0
    """The share of runs that fail; those of poison always do."""
    poison: float = 0.0
    most_attempts: int = 3
    killer: int = 0
    """The version whose handler ends the process, and which every run is recorded for at its beginning."""
    fails_first: bool = False
    """Whether the killer fails once before."""
    batch: bool = False
    """By a broker's subscriber of batches."""
    options: dict[str, Any] = field(default_factory=dict)


def is_poison(name: str, version: int, share: float) -> bool:
    """Whether this message fails whenever and wherever it runs."""
    digest = hashlib.sha256(f"{name} {version}".encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


class Performer:
    """One outbox with its handlers."""

    def __init__(self, part: LogPart, record: asyncpg.Pool) -> None:
        self._part = part
        self._record = record
        self._chance = random.Random(f"{part.seed} {os.getpid()}")
        self.is_to_exit = False
        """Whether the next handler ends the process on the spot, in the middle of its batch."""
        self._engine = create_async_engine(part.world.replace("postgresql://", f"postgresql+{part.driver}://"))
        self._retry = ConstantRetry(delay_seconds=0.05, max_attempts=part.most_attempts)
        self.outbox = Outbox(self._engine, tables=log_tables(), retry_strategy=self._retry, **part.options)
        self.outbox.events.subscribe(lambda held: say(f"slots {held.slots}"), SlotsHeld)

    async def read(self, ended: asyncio.Event) -> None:
        """Read the group until `ended` is set."""
        part = self._part
        handler: Any = self._with_effect if part.transactional else self._plainly
        say(READY)
        await self.outbox.run(
            handler,
            part.group,
            concurrency=part.concurrency,
            poll_interval=part.poll_interval,
            stop_event=ended,
            transactional=part.transactional,
        )

    async def read_batches(self, ended: asyncio.Event) -> None:
        """Read it by a broker until `ended` is set."""
        metadata = MetaData()
        outbox_table, tables = make_outbox_table(metadata), log_tables(metadata)
        broker = OutboxBroker(self._engine, outbox_table=outbox_table, dlq_table=None, log_tables=tables, logger=None)
        options: dict[str, Any] = {"max_fetch_interval": 1.0, "retry_strategy": self._retry, **self._part.options}

        @broker.subscriber(topic=TOPIC, group=self._part.group, batch=True, batch_size=100, **options)
        async def handle(bodies: list[dict[str, Any]]) -> None:
            for body in bodies:
                await self._live(body["name"], body["version"])

        say(READY)
        await broker.start()
        await ended.wait()
        await broker.stop()

    async def sequence(self, ended: asyncio.Event) -> None:
        """Make ticks, mostly waiting for the tick of another and sometimes not, until `ended` is set."""
        say(READY)
        while not ended.is_set():
            await self.outbox.client.sequencer.tick(
                wait=self._chance.random() < 0.9, owners=self._chance.random() < 0.3
            )

    async def _plainly(self, message: OutboxMessage) -> None:
        name, version = message.payload["name"], message.payload["version"]
        await self._live(name, version)
        if not self._part.killer:
            await self._keep(name, version)

    async def _keep(self, name: str, version: int) -> None:
        insert = "insert into handled (name, version, pid) values ($1, $2, $3)"
        await self._record.execute(insert, name, version, os.getpid())

    async def _with_effect(self, message: OutboxMessage, session: AsyncSession) -> None:
        name, version = message.payload["name"], message.payload["version"]
        insert = text("insert into effects (name, version, pid) values (:name, :version, :pid)")
        await session.execute(insert, {"name": name, "version": version, "pid": os.getpid()})
        # After the effect: a handler that fails or dies here must leave nothing behind.
        await self._live(name, version)

    async def _live(self, name: str, version: int) -> None:
        part, chance = self._part, self._chance
        if part.killer:
            await self._keep(name, version)
        if version == part.killer:
            runs = await self._record.fetchval("select count(*) from handled where version = $1", version)
            if part.fails_first and runs == 1:
                raise ValueError(version)
            os._exit(9)
        await asyncio.sleep(chance.uniform(part.shortest, part.longest))
        if self.is_to_exit:
            os._exit(EXITED)
        if is_poison(name, version, part.poison) or chance.random() < part.failures:
            msg = f"{name} {version} fails"
            raise RuntimeError(msg)

    async def close(self) -> None:
        await self.outbox.cleanup()
        await self._engine.dispose()


def set_trap(point: str) -> None:
    """Hang in every transaction that is about to be committed, or freeze in a tick."""
    if point == "commit":
        settle_within = Settler.settle_within

        async def settle_and_hang(settler: Settler, *args: Any, **kwargs: Any) -> None:
            await settle_within(settler, *args, **kwargs)
            await hang_at(point)

        Settler.settle_within = settle_and_hang  # type: ignore[method-assign, assignment]
    elif point == "tick":
        run_each = DedicatedConnection._run_each

        async def run_and_freeze(connection: DedicatedConnection, steps: Any, *args: Any) -> Any:
            return await run_each(connection, _frozen_after_the_first(steps), *args)

        DedicatedConnection._run_each = run_and_freeze  # type: ignore[method-assign, assignment]


def _frozen_after_the_first(steps: Iterable[Any]) -> Any:
    for number, step in enumerate(steps):
        if number == 1:
            say("tick")
            os.kill(os.getpid(), signal.SIGSTOP)
        yield step


async def main(part: LogPart) -> None:
    if part.hang is not None:
        set_trap(part.hang)
    ended = until_told()
    async with asyncpg.create_pool(part.record, min_size=1, max_size=4) as record:
        performer = Performer(part, record)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, setattr, performer, "is_to_exit", True)
        plays = (performer.read_batches if part.batch else performer.read) if part.group else performer.sequence
        await plays(ended)
        await performer.close()


if __name__ == "__main__":
    asyncio.run(main(LogPart(**json.loads(sys.argv[1]))))
