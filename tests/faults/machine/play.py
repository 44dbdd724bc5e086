"""One run: a world, a cast, faults for a time, then peace until everything is handled, and the facts.

`play` is called by `__main__` and by the tests. A scene that needs something special gives a function of its own
instead of the nemesis: it is told the world and the cast, and returns when everything is whole again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from tests.faults.machine.cast import Cast
from tests.faults.machine.checker import check
from tests.faults.machine.checks import whole
from tests.faults.machine.drain import STANDSTILL, drain, places_of
from tests.faults.machine.facts import Facts, gather, in_stream, load, save
from tests.faults.machine.history import History, read
from tests.faults.machine.part import (
    CONSUMER,
    MEMBER,
    PRODUCER,
    RELAY,
    REVIVED_WORKER,
    SOUGHT_MEMBER,
    TRANSACTIONAL_MEMBER,
    TRANSACTIONAL_WORKER,
    WORKER,
    Part,
)
from tests.faults.machine.report import Report
from tests.faults.machine.runs import tell
from tests.faults.machine.stage import LEASE_SECONDS, STREAM, set_up
from tests.faults.machine.world import World
from tests.faults.machine.wrong import wrong

T = TypeVar("T")

NUMBERS = {
    WORKER: 2,
    TRANSACTIONAL_WORKER: 2,
    REVIVED_WORKER: 1,
    MEMBER: 2,
    TRANSACTIONAL_MEMBER: 2,
    SOUGHT_MEMBER: 2,
    RELAY: 2,
    CONSUMER: 2,
    PRODUCER: 2,
}
PEACE_SECONDS = 2.0
"""Before the first fault."""
FACTS_FILE = "facts.json"
GONE_SECONDS = 10.0
"""How long a server may take to see that connections were closed."""

Breaks = Callable[[World, Cast], Awaitable[Mapping[str, str]]]
"""Breaks things; gives what could not be done, and why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to play."""

    seed: int
    seconds: float
    numbers: Mapping[str, int] = field(default_factory=lambda: NUMBERS)
    standby: bool = True
    pooler: bool = True
    lease_seconds: float = LEASE_SECONDS
    pace: float = 28.0
    """Transactions a second, of each producer, where nothing is broken; each has four or five messages."""
    part: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every `Part`."""
    standstill: float = STANDSTILL
    """Seconds without progress after which what is left is lost."""

    @property
    def has_nats(self) -> bool:
        return RELAY in self.numbers


async def play(plan: Plan, directory: Path, breaks: Breaks) -> Report:
    """Play it, and check what came of it."""
    history = History(directory)
    async with World.standing(plan.seed, standby=plan.standby, pooler=plan.pooler, nats=plan.has_nats) as world:
        await asyncio.to_thread(set_up, world.direct)
        if world.nats_server is not None:
            await world.nats_server.make_stream(STREAM, "machine.>")
        world.history = history
        world.lease_seconds = plan.lease_seconds
        part = Part(
            "",
            plan.seed,
            world.dsn,
            str(directory),
            nats=world.nats,
            lease_seconds=plan.lease_seconds,
            pace=plan.pace,
            **plan.part,
        )
        async with Cast.standing(history, part, plan.seed, pooled=world.pooled) as cast:
            await cast.start_all(plan.numbers)
            await asyncio.sleep(PEACE_SECONDS)
            skipped = await _tried(history, "breaking", breaks(world, cast)) or {}
            # Whatever became of that: what was committed is to be handled, and judged.
            await _tried(history, "stopping the producers", cast.stop(PRODUCER))
            draining = drain(lambda: world.superuser, history, tuple(plan.numbers), plan.standstill)
            await _tried(history, "draining", draining)
            await _tried(history, "stopping", cast.stop())
        # Kept in the file alone: `checked` reads it, and an hour's facts are large.
        facts = await _tried(history, "gathering the facts", _facts(world, plan))
        if facts is not None:
            save(facts, directory / FACTS_FILE)
    return checked(directory, plan.seed, plan.seconds / 60, dict(skipped))


async def _tried(history: History, what: str, step: Awaitable[T]) -> T | None:
    """What a step gives; None where it failed, which the history is told of: a run ends with a report in any case."""
    try:
        return await step
    except Exception as error:
        history.failed(what, error)
        return None


def checked(directory: Path, seed: int = 0, minutes: float = 0.0, skipped: dict[str, str] | None = None) -> Report:
    """The report of a run that is over, from what it left; without facts, that it could not be judged."""
    story, file = tell(read(directory)), directory / FACTS_FILE
    if not file.exists():
        unjudged = [wrong("not judged", "the run", "there are no facts"), *whole.check(story, Facts())]
        return Report(seed, minutes, story, Facts(), unjudged, skipped or {})
    facts = load(file)
    return Report(seed, minutes, story, facts, check(story, facts), skipped or {})


async def _facts(world: World, plan: Plan) -> Facts:
    if world.pooler is not None:
        # Its connections to the server are its own.
        await world.pooler.stop()
    sent = None if world.nats_server is None else await in_stream(world.nats_server.url)
    await _gone(world.superuser)
    places = places_of(tuple(plan.numbers), has_nats=plan.has_nats)
    return await asyncio.to_thread(gather, world.superuser, plan.lease_seconds, sent, places)


async def _gone(dsn: str) -> None:
    """Wait until the server has seen that connections were closed, or for so long."""
    question = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        " and backend_type = 'client backend'"
    )
    loop = asyncio.get_running_loop()
    until = loop.time() + GONE_SECONDS
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while loop.time() < until:
            found = await (await connection.execute(question)).fetchone()
            if found == (0,):
                return
            await asyncio.sleep(0.1)


def striking(seconds: float, strikes: Sequence[Any] | None = None, **options: Any) -> Breaks:
    """The nemesis for so long; None is every strike that there is."""

    async def breaks(world: World, cast: Cast) -> Mapping[str, str]:
        from tests.faults.machine.nemesis import Nemesis

        nemesis = Nemesis(world, cast, strikes=strikes, **options)
        await nemesis.run(seconds)
        return nemesis.skipped

    return breaks


def peace(seconds: float) -> Breaks:
    """Nothing at all for so long."""

    async def breaks(_: World, __: Cast) -> Mapping[str, str]:
        await asyncio.sleep(seconds)
        return {}

    return breaks
