"""Scenes for mutations: small, and so arranged that the missing guard shows every time and not only now and then.

Each publishes a few messages itself, waits for what the history says, and does the one thing that the guard is for.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.queue.lanes import GRACE
from tests.faults.machine.cast import Cast
from tests.faults.machine.history import BEAT, STARTED, Event, read
from tests.faults.machine.part import MEMBER, RELAY, WORKER
from tests.faults.machine.play import Breaks, Plan
from tests.faults.machine.roles.producer import record
from tests.faults.machine.stage import FACTS, MARK, ORDERS, OUTWARD, Tables
from tests.faults.machine.world import World
from tests.waiting import eventually

SEED = 5
STANDSTILL = 12.0
"""Seconds without progress: longer than any lease and any handler here."""
LEASE = 2.0
SELDOM = 120.0
"""Seconds between full scans, where nothing but what is tested may find a message."""

_versions = itertools.count(1)


class Publisher:
    """Publishes for a scene, past all proxies."""

    def __init__(self, world: World) -> None:
        self.engine = create_async_engine(world.direct.replace("postgresql://", "postgresql+asyncpg://"))
        tables = Tables()
        self.broker = OutboxBroker(
            self.engine, outbox_table=tables.outbox, dlq_table=tables.dead, log_tables=tables.log, logger=None
        )

    async def __aenter__(self) -> "Publisher":
        await self.broker.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.stop()
        await self.engine.dispose()

    def session(self) -> AsyncSession:
        return AsyncSession(self.engine)

    async def put(self, session: AsyncSession, place: str, *, seconds: float = 0.0, at: datetime | None = None) -> str:
        """A business row and its message, in that transaction; the id."""
        message = uuid4()
        key = f"scene-{next(_versions)}" if place == FACTS else None
        body = {
            "id": str(message),
            "place": place,
            "key": key,
            "version": None if key is None else 1,
            "poison": False,
            "fails": 0,
            "seconds": seconds,
        }
        await record(session, body)
        await self.broker.publish(
            body,
            **({"topic": FACTS} if place == FACTS else {"queue": place}),
            session=session,
            key=key,
            headers={MARK: str(message)},
            message_id=message,
        )
        return str(message)

    async def publish(self, place: str, **options: Any) -> str:
        """The same in a transaction of its own."""
        async with self.session() as session, session.begin():
            return await self.put(session, place, **options)


@dataclass(frozen=True, slots=True)
class Scene:
    """What to play, and what to break."""

    numbers: Mapping[str, int]
    found: frozenset[str]
    """Kinds of wrong of which one at least must be found where the guard is missing."""
    lease: float = LEASE
    options: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        part = {"options": self.options, "broker": self.broker}
        return Plan(
            SEED,
            0.0,
            self.numbers,
            standby=False,
            pooler=False,
            lease_seconds=self.lease,
            part=part,
            standstill=STANDSTILL,
        )

    def breaks(self, directory: Path) -> Breaks:
        """What happens, with the histories at hand."""

        async def breaks(world: World, cast: Cast) -> Mapping[str, str]:
            async with Publisher(world) as publisher:
                await self.play(world, cast, publisher, directory)
            return {}

        return breaks

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        raise NotImplementedError


def starts(directory: Path, message: str) -> list[Event]:
    """Runs of a message that have begun."""
    return [event for event in read(directory) if event.kind == STARTED and event.data["id"] == message]


def beats(directory: Path, pid: int) -> list[Event]:
    """When a process said that it is awake."""
    return [event for event in read(directory) if event.kind == BEAT and event.pid == pid]


async def runs(directory: Path, message: str, number: int) -> list[Event]:
    """Wait until so many runs of a message have begun."""

    def begun() -> list[Event]:
        found = starts(directory, message)
        return found if len(found) >= number else []

    found: list[Event] = await eventually(begun, message=f"{number} runs of {message}")
    return found


class Thawed(Scene):
    """Who handles a message is frozen until another has it, and then goes on to settle it."""

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        place, role = (FACTS, MEMBER) if MEMBER in self.numbers else (ORDERS, WORKER)
        seconds = 3 * self.lease
        message = await publisher.publish(place, seconds=seconds)
        (first,) = await runs(directory, message, 1)
        # Its event loop has gone on, so that the handler's time runs.
        await eventually(lambda: any(event.at > first.at for event in beats(directory, first.pid)))
        holder = next(child for child in cast.of(role) if child.pid == first.pid)
        with world.fault("frozen", f"{role} {first.pid}"):
            holder.freeze()
            try:
                await runs(directory, message, 2)
                # So that its handler is at its end the moment it is awake.
                slept = asyncio.get_running_loop().time() - first.seconds
                await asyncio.sleep(max(0.0, seconds + 0.2 - slept))
            finally:
                holder.thaw()


class LongHandlers(Scene):
    """Handlers take longer than their leases, and nothing is broken."""

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        messages = [await publisher.publish(ORDERS, seconds=2.5 * self.lease) for _ in range(4)]
        for message in messages:
            await runs(directory, message, 1)


class LateCommit(Scene):
    """A transaction that has drawn its number stays open while others commit behind it."""

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        async with publisher.session() as late:
            await publisher.put(late, FACTS)
            for _ in range(5):
                message = await publisher.publish(FACTS)
                await runs(directory, message, 1)
            await late.commit()


class Overlap(Scene):
    """A message appears just below the place that the claims have reached."""

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        # Several times: a wake-up that comes late lets even a claim without a grace look below once.
        in_time = 0
        while in_time < 5:
            in_time += await self._overlapped(world, publisher, directory)

    async def _overlapped(self, world: World, publisher: Publisher, directory: Path) -> bool:
        """Whether the message came in time for what is promised; else it is made due again, and says nothing."""
        async with publisher.session() as late:
            began: datetime = (await late.execute(text("select now()"))).scalar_one()
            # Due when it was inserted, and so before the claim that passes it.
            message = await publisher.put(late, ORDERS)
            first = await publisher.publish(ORDERS)
            await runs(directory, first, 1)
            # All wake-ups of the first are heard by then.
            await asyncio.sleep(GRACE / 4)
            await late.commit()
        ((now,),) = await world.ask("select clock_timestamp()")
        if now - began < timedelta(seconds=GRACE):
            return True
        await world.ask("update outbox set next_attempt_at = now() where message_id = %s::uuid", message)
        return False


class Unconfirmed(Scene):
    """The broker is down while messages are relayed, and the relay is killed before it is back."""

    async def play(self, world: World, cast: Cast, publisher: Publisher, directory: Path) -> None:
        first = await publisher.publish(OUTWARD)

        async def is_relayed() -> bool:
            return await world.ask("select 1 from outbox where message_id = %s::uuid", first) == []

        await eventually(is_relayed, message="the relay works")
        with world.fault("NATS down", "and the relay killed"):
            await world.stop_nats()
            for _ in range(5):
                await publisher.publish(OUTWARD)

            async def is_taken() -> bool:
                free = "select 1 from outbox where queue = 'outward' and acquired_token is null"
                return await world.ask(free) == []

            await eventually(is_taken, message="the relay has taken them")
            # With the guard they stay; without it they go at once.
            await asyncio.sleep(1.0)
            (relay,) = cast.of(RELAY)
            await relay.kill()
            await world.start_nats()
        await cast.start(RELAY)


SCENES: dict[str, Scene] = {
    "settle_without_token": Thawed({WORKER: 2}, frozenset({"settled by a stranger"})),
    "no_renewal": LongHandlers({WORKER: 2}, frozenset({"not renewed"}), lease=3.0),
    "bound_without_transactions": LateCommit({MEMBER: 1}, frozenset({"lost"})),
    "no_grace": Overlap(
        {WORKER: 1},
        frozenset({"left"}),
        lease=SELDOM + 1,
        options={"min_fetch_interval": SELDOM, "max_fetch_interval": SELDOM},
        # Whoever watches the sequence of ids scans for what was drawn and not announced.
        broker={"watch": False},
    ),
    "position_without_epoch": Thawed(
        {MEMBER: 2}, frozenset({"cursor moved by a stranger"}), options={"max_workers": 1}
    ),
    "settled_before_confirm": Unconfirmed({RELAY: 1}, frozenset({"lost"})),
}
"""By the mutation that they are for."""
