"""The janitor: chores that keep tables small, done by the workers themselves while nobody else waits for them.

One process of the fleet at a time: a lock that is tried, not waited for, and that ends with its connection. Each round
has connections of its own, which are closed after it; a chore that fails is reported, delays no other, and is tried
again after ever longer times. A `Retention` says which chores there are; without one nothing runs. What goes away does
so slice by slice, each a transaction of its own. Run as a service by the clients of the queue and of the log, and by
the inbox; `Upkeep` is what there is to do for queues.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.queue_rows import PurgedRow
from faststream_outbox._internal.sql.statements import Statement, named, statements
from faststream_outbox.errors import InvalidOption, InvalidOptionType

T = TypeVar("T")

LONGEST_PAUSE = 3600.0
"""Seconds after which a chore that fails is tried again at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things stay; what is older goes away by itself, while workers run.

    messages: of topics, once every living group has read them; None keeps them, and makes partitions ahead only.
    dead_letters: of queues, since they failed; None keeps them.
    group_expires_after: a group of a topic that was not heard of for so long holds nothing back any more.
    every: how often the chores are done.
    """

    messages: timedelta | None = None
    dead_letters: timedelta | None = None
    group_expires_after: timedelta = timedelta(days=30)
    every: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        for name in ("messages", "dead_letters", "group_expires_after", "every"):
            value: object = getattr(self, name)
            if value is None and name in ("messages", "dead_letters"):
                continue
            if not isinstance(value, timedelta):
                msg = f"{name} must be a timedelta, not {value!r}."
                raise InvalidOptionType(msg)
            if value < timedelta(0) or (value == timedelta(0) and name in ("group_expires_after", "every")):
                msg = f"{name} must be a positive time, not {value}."
                raise InvalidOption(msg)


def checked_retention(value: object) -> Retention | None:
    """`value` if it is a Retention or None."""
    if value is not None and not isinstance(value, Retention):
        msg = f"retention must be a Retention, as in Retention(messages=timedelta(days=7)), not {value!r}."
        raise InvalidOptionType(msg)
    return value


@dataclass(slots=True)
class Chore:
    """Something to do in each round, and when it may be tried again after it has failed."""

    name: str
    work: Callable[[], Awaitable[None]]
    failures: int = 0
    failing_since: float = 0.0
    again_at: float = field(default=float("-inf"))


class Janitor:
    """Does chores every so often, unless another process is doing them. `close` ends the chores' connections."""

    def __init__(
        self,
        guard: DedicatedConnection,
        lock: tuple[Statement, str],
        chores: Sequence[Chore],
        events: Events,
        *,
        every: float,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._guard = guard
        self._lock = lock
        self._chores = chores
        self._events = events
        self._every = every
        self._close = close
        self._guarding = Chore("taking turns", self.round)

    async def run(self) -> None:
        """Keep things in order until cancelled."""
        while True:
            await self._try(self._guarding)
            # Processes that were started together need not come together.
            await asyncio.sleep(self._every * random.uniform(0.9, 1.1))

    async def round(self) -> None:
        """Do what is to be done now, if nobody else is doing it."""
        statement, table = self._lock
        async with self._guard.holding(statement, {"table": table}) as is_ours:
            if not is_ours:
                return
            try:
                for chore in self._chores:
                    await self._try(chore)
            finally:
                await self._close()

    async def _try(self, chore: Chore) -> None:
        now = asyncio.get_running_loop().time()
        if now < chore.again_at:
            return
        try:
            await chore.work()
            if chore.failures:
                chore.failures = 0
                seconds = asyncio.get_running_loop().time() - chore.failing_since
                self._events.emit(events.ChoreRestored(chore.name, seconds))
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            chore.failures += 1
            chore.failing_since = now if chore.failures == 1 else chore.failing_since
            pause = min(max(LONGEST_PAUSE, self._every), self._every * 2.0 ** min(chore.failures - 1, 10))
            # Half a round less: the next one that comes then must not be a little too early.
            chore.again_at = now + pause - self._every / 2
            self._events.emit(events.ChoreFailed(chore.name, error, pause))


SLICE = 1000


async def purge_in_slices(
    purge: Callable[[T | None], Awaitable[tuple[int, T | None]]], on_progress: Callable[[int], object] | None = None
) -> int:
    """Delete slice by slice; how many went.

    purge: deletes a slice behind the place where the last one ended; how many went, and where the next one begins. It
        is the last where that is None. Entries of the index that are dead already are not walked over again so.
    on_progress: called with the number so far after each slice.
    """
    total, after = 0, None
    while True:
        gone, after = await purge(after)
        total += gone
        if on_progress is not None:
            on_progress(total)
        if after is None:
            return total


class Upkeep:
    """The chores of one outbox table: a key that a dead letter holds is free once the letter is gone."""

    def __init__(
        self,
        names: Names,
        events: Events,
        guard: DedicatedConnection,
        connection: DedicatedConnection,
        *,
        keep: timedelta,
        every: timedelta,
    ) -> None:
        self._connection = connection
        self._sql = statements("dead", names)
        self._events = events
        self._keep = keep.total_seconds()
        self._table = names.table
        self.janitor = Janitor(
            guard,
            (self._sql["lock_janitor"], self._table),
            [Chore("dead letters of " + self._table, self.purge)],
            events,
            every=every.total_seconds(),
            close=connection.close,
        )

    async def purge(self) -> None:
        """Delete dead letters that are old enough."""
        purged = await purge_in_slices(self._purge_slice)
        if purged:
            self._events.emit(events.DeadLettersPurged(self._table, purged))

    async def _purge_slice(self, after: int | None) -> tuple[int, int | None]:
        values = {"age": self._keep, "after": after or 0, "limit": SLICE}
        (row,) = named(PurgedRow, await self._connection.fetch(self._sql["purge_old"], values))
        return row.gone, row.last if row.gone and row.seen >= SLICE else None
