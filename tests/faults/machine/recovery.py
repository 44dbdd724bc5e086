"""How long delivery takes to come back after a fault: `python -m tests.faults.machine.recovery`.

An idle fleet is hit. From the moment at which the fault is over, a message is published as soon as that is possible,
and it counts until a handler has begun with it. Prints a table: half of the tries took no longer, and the longest.
`--report docs/reliability/recovery.json` keeps it for `page`.

What is idle shows the worst: a busy worker finds the next message by itself, an idle one needs its connections back.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import MetaData
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.events import Events
from faststream_outbox.publish import publish
from faststream_outbox.schema import Names, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer
from tests.faults.child import PLAIN, Part
from tests.faults.machine.pair import Ending
from tests.faults.machine.small_cast import SmallCast, small_cast
from tests.faults.machine.strikes.sessions import Terminated
from tests.faults.machine.strikes.striking import Tame
from tests.faults.machine.world import World
from tests.faults.proxy import Way
from tests.faults.scene import Scene
from tests.pgbouncer.conftest import SETTINGS
from tests.waiting import eventually

TRIES = 5
LEASE_SECONDS = 2.0
IDLE_SECONDS = 1.5
"""So long nothing happens before a fault."""
LONG_SECONDS = 10.0
PATIENCE = 90.0


@dataclass
class Trial:
    """A world with one worker or two, and somebody who publishes."""

    world: World
    scene: Scene
    cast: SmallCast
    engine: AsyncEngine
    wakeups: Wakeups

    async def publish(self) -> UUID:
        """One message, as soon as it can be."""
        table, message_id = make_outbox_table(MetaData()), uuid4()
        envelope = Envelope(queue=PLAIN, body=b"1", message_id=message_id)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with AsyncSession(self.engine) as session, session.begin():
                        await publish(session, table, envelope, wakeups=self.wakeups)
                except (OSError, SQLAlchemyError):
                    await asyncio.sleep(0.01)
                else:
                    return message_id

    async def is_begun(self, message_id: UUID, times: int = 1) -> None:
        """Wait until a handler has begun with it so often."""
        question = "select count(*) from handled where message_id = %s"
        async with (
            asyncio.timeout(PATIENCE),
            await psycopg.AsyncConnection.connect(self.scene.record, autocommit=True) as record,
        ):
            while True:
                found = await (await record.execute(question, (message_id,))).fetchone()
                if found is not None and found[0] >= times:
                    return
                await asyncio.sleep(0.002)

    async def settled(self) -> None:
        """A message comes through, and nothing happens for a while."""
        await self.is_begun(await self.publish())
        await asyncio.sleep(IDLE_SECONDS)

    async def measure(self, fault: "Fault") -> float:
        """Seconds from the end of a fault to the next delivery."""
        await self.settled()
        async with fault(self) as over:
            await self.is_begun(await self.publish())
            return time.monotonic() - over


Measured = dict[str, str | int]
Fault = Callable[[Trial], AbstractAsyncContextManager[float]]
"""Hits, and gives the time at which the fault was over; at the end of its block everything is as it was."""


@asynccontextmanager
async def nothing(_: Trial) -> AsyncIterator[float]:
    yield time.monotonic()


@asynccontextmanager
async def worker_killed(trial: Trial) -> AsyncIterator[float]:
    """One of two."""
    await trial.cast.alive[0].kill()
    yield time.monotonic()
    await trial.cast.start()


def restarted(how: Ending, down: float = 0.0) -> Fault:
    @asynccontextmanager
    async def fault(trial: Trial) -> AsyncIterator[float]:
        await trial.world.restart(how, down)
        yield time.monotonic()

    return fault


def sessions_ended(purpose: str) -> Fault:
    @asynccontextmanager
    async def fault(trial: Trial) -> AsyncIterator[float]:
        await Terminated(purpose).strike(trial.world, trial.cast, Tame())
        yield time.monotonic()

    return fault


@asynccontextmanager
async def connections_cut(trial: Trial) -> AsyncIterator[float]:
    trial.world.line.cut()
    yield time.monotonic()


@asynccontextmanager
async def silent(trial: Trial) -> AsyncIterator[float]:
    """Nothing arrives either way, and connections that lost something are never told of it."""
    trial.world.line.way = Way.BLACK_HOLE
    await asyncio.sleep(LONG_SECONDS)
    trial.world.line.way = Way.OPEN
    yield time.monotonic()


@asynccontextmanager
async def failed_over(trial: Trial) -> AsyncIterator[float]:
    """Over when the new primary can be reached; it gets its standby meanwhile."""
    old = trial.world.line.target
    following = asyncio.create_task(trial.world.fail_over())
    await eventually(lambda: trial.world.line.target != old, PATIENCE)
    yield time.monotonic()
    await following


@asynccontextmanager
async def pooler_restarted(trial: Trial) -> AsyncIterator[float]:
    await trial.world.restart_pooler()
    yield time.monotonic()


async def in_flight(trial: Trial) -> float:
    """Seconds from the kill of a worker to the second delivery of what it had in flight; its lease is part of it."""
    for child in trial.cast.alive:
        await child.stop()
    doomed = await trial.cast.start(hang="handler")
    message_id = await trial.publish()
    await doomed.reaches("handler")
    await trial.cast.start()
    await doomed.kill()
    killed = time.monotonic()
    await trial.is_begun(message_id, times=2)
    return time.monotonic() - killed


FAULTS: dict[str, Fault] = {
    "none": nothing,
    "worker killed, another one lives": worker_killed,
    "PostgreSQL restarted (fast)": restarted("fast"),
    "PostgreSQL restarted (immediate)": restarted("immediate"),
    "listener ended": sessions_ended("listen"),
    "all sessions ended": sessions_ended("all"),
    "all connections reset": connections_cut,
    "failover": failed_over,
    f"PostgreSQL down for {LONG_SECONDS:g} s": restarted("immediate", LONG_SECONDS),
    f"line silent for {LONG_SECONDS:g} s": silent,
}
IN_FLIGHT = f"worker killed, its message in flight (lease {LEASE_SECONDS:g} s)"
BEHIND_POOLER: dict[str, Fault] = {"none, behind PgBouncer": nothing, "PgBouncer restarted": pooler_restarted}


@asynccontextmanager
async def trial(world: World, record: str, driver: str, *, pooled: bool) -> AsyncIterator[Trial]:
    """Two workers and a publisher, through PgBouncer or not."""
    scene = Scene(world.direct, record, LEASE_SECONDS)
    await asyncio.to_thread(scene.set_up)
    address = world.pooled if pooled else world.dsn
    assert address is not None
    settings = SETTINGS[driver] if pooled else {}
    options = {"lease_ttl_seconds": LEASE_SECONDS}
    part = Part(address, record, [PLAIN], 1, driver, options=options, settings=settings)
    engine = create_async_engine(address.replace("postgresql://", f"postgresql+{driver}://"), connect_args=settings)
    wakeups = Wakeups(engine, Names.of(make_outbox_table(MetaData())), Events())
    try:
        async with small_cast(part, workers=2) as cast:
            yield Trial(world, scene, cast, engine, wakeups)
    finally:
        await wakeups.close()
        await engine.dispose()


async def measured(tries: int, drivers: list[str], only: str) -> AsyncIterator[Measured]:
    """What was measured, one fault after the other."""
    with PostgresServer.start(settings={"fsync": "off"}) as record:
        for driver in drivers:
            async with World.standing(1, standby=True, pooler=True, nats=False) as world:
                address = record.dsn(driver="")
                async with trial(world, address, driver, pooled=False) as one:
                    for kind, fault in FAULTS.items():
                        if only in kind:
                            yield _measured(kind, driver, [await one.measure(fault) for _ in range(tries)])
                    if only in IN_FLIGHT:
                        yield _measured(IN_FLIGHT, driver, [await in_flight(one) for _ in range(tries)])
                async with trial(world, address, driver, pooled=True) as one:
                    for kind, fault in BEHIND_POOLER.items():
                        if only in kind:
                            yield _measured(kind, driver, [await one.measure(fault) for _ in range(tries)])


def _measured(kind: str, driver: str, seconds: list[float]) -> Measured:
    return {
        "fault": kind,
        "driver": driver,
        "tries": len(seconds),
        "half within ms": round(statistics.median(seconds) * 1000),
        "longest ms": round(max(seconds) * 1000),
    }


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.machine.recovery", description=__doc__)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--driver", choices=[*SETTINGS, "both"], default="both")
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--report", type=Path, help="where to keep it")
    given = parser.parse_args()
    drivers = list(SETTINGS) if given.driver == "both" else [given.driver]
    found: list[Measured] = []
    async for one in measured(given.tries, drivers, given.only):
        found.append(one)
        print(" | ".join(map(str, one.values())), flush=True)
    if given.report is not None:
        given.report.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
