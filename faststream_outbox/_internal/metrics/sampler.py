"""Asks the database for gauges: one process of the fleet at a time, off every connection that delivers.

A lock that is tried, and not waited for, decides who asks. Whoever has it keeps it from one question to the next, so
that the gauges stay with one process; the others show none, and try again from time to time. The lock is a
transaction's, without a snapshot, and the server ends it if its process falls silent: one that is frozen or cut off
does not keep the others from asking. Nothing is written. What fails is an event and never an error of the
application's, and costs its own gauges and no other.

However many queues and groups there are, so many have gauges of their own, and the rest is `other`; so it is with every
label that others can write. Run by the broker; the recorders bound their labels with the same.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.metrics import series as known
from faststream_outbox._internal.metrics.series import Series
from faststream_outbox._internal.overview.overview import Overview
from faststream_outbox._internal.overview.processes import Process
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.overview.topics import BlockedKey, GapStatus
from faststream_outbox._internal.schema.names import AnyNames
from faststream_outbox._internal.service import Service
from faststream_outbox._internal.sql.overview_rows import TableRowsRow
from faststream_outbox._internal.sql.statements import named, statements

MOST_VALUES = 200
"""Of one label, in one recorder."""
OTHER = "other"


class Bounds:
    """Which values each label has had."""

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: defaultdict[str, set[str]] = defaultdict(set)

    def bounded(self, label: str, value: str) -> str:
        """The value, or `other` if the label has had too many."""
        seen = self._seen[label]
        if value not in seen:
            if len(seen) >= self._most:
                return OTHER
            seen.add(value)
        return value


MOST_NAMES = 100
"""Queues, or groups, that have gauges of their own: those with the most messages."""
MOST_KEYS = 1000
"""Blocked keys that are counted."""


class Reading(NamedTuple):
    """A value of one gauge."""

    series: Series
    labels: Mapping[str, str]
    value: float


Question = tuple[str, Callable[[], Awaitable[Iterable[Reading]]]]
"""A name, and what gives the readings."""


async def ask(questions: Sequence[Question]) -> tuple[list[Reading], dict[str, Exception]]:
    """All that is answered, and what is not."""
    began = monotonic()
    readings: list[Reading] = []
    failed: dict[str, Exception] = {}
    for name, question in questions:
        try:
            readings += await question()
        except Exception as error:  # noqa: BLE001 - reported; the others are asked all the same
            failed[name] = error
        readings.append(Reading(known.SAMPLE_FAILED, {"question": name}, float(name in failed)))
    readings.append(Reading(known.SAMPLE_SECONDS, {}, monotonic() - began))
    return readings, failed


def of_queues(found: Sequence[QueueStatus]) -> list[Reading]:
    """How much is in queues."""
    sums = (
        (known.QUEUE_READY, "ready"),
        (known.QUEUE_SCHEDULED, "scheduled"),
        (known.QUEUE_LEASED, "leased"),
        (known.QUEUE_DEAD, "dead"),
        (known.QUEUE_SET_APART, "set_apart"),
    )
    readings: list[Reading] = []
    ordered = sorted(found, key=lambda each: (each.ready, each.leased, each.scheduled, each.dead), reverse=True)
    for name, some in _named(ordered, lambda each: each.queue):
        labels = {"queue": name}
        readings += [Reading(series, labels, sum(getattr(each, field) for each in some)) for series, field in sums]
        readings.append(Reading(known.QUEUE_OLDEST, labels, max(each.oldest_ready_seconds for each in some)))
        readings.append(Reading(known.QUEUE_PAUSED, labels, float(any(each.is_paused for each in some))))
    return readings


def of_groups(found: Sequence[GroupStatus], blocked: Sequence[BlockedKey]) -> list[Reading]:
    """How far groups are."""
    keys: dict[tuple[str, str], int] = {}
    for key in blocked:
        keys[key.group, key.uri] = keys.get((key.group, key.uri), 0) + 1
    readings: list[Reading] = []
    ordered = sorted(found, key=lambda each: (each.messages, each.parked), reverse=True)
    for (group, uri), some in _named(ordered, lambda each: (each.group, each.uri), (OTHER, OTHER)):
        labels = {"group": group, "uri": uri}
        readings += [
            Reading(known.GROUP_LAG, labels, sum(each.messages for each in some)),
            Reading(known.GROUP_LAG_SECONDS, labels, max(each.seconds for each in some)),
            Reading(known.GROUP_MEMBERS, labels, sum(each.members for each in some)),
            Reading(known.GROUP_PARKED, labels, sum(each.parked for each in some)),
            Reading(known.GROUP_BLOCKED_KEYS, labels, sum(keys.get((each.group, each.uri), 0) for each in some)),
            Reading(known.GROUP_PAUSED, labels, float(any(each.paused_since is not None for each in some))),
        ]
    return readings


def of_gaps(found: Sequence[GapStatus], log: str) -> list[Reading]:
    """How old the oldest gap is; 0 where there is none."""
    return [Reading(known.OLDEST_GAP, {"log": log}, max((gap.age_seconds for gap in found), default=0.0))]


def of_processes(found: Sequence[Process]) -> list[Reading]:
    """How many processes there are, and connections of theirs."""
    return [
        Reading(known.CONNECTIONS, {}, sum(len(process.backend_pids) for process in found)),
        Reading(known.PROCESSES, {}, len({(process.host, process.pid) for process in found})),
    ]


def of_relays(found: Sequence[Any]) -> list[Reading]:
    """How late relays are, as far as that is known."""
    return [
        Reading(known.RELAY_OLDEST, {"relay": each.name, "transport": each.destination}, each.oldest_seconds)
        for each in found[:MOST_NAMES]
        if each.oldest_seconds is not None
    ]


def of_rows(found: Iterable[TableRowsRow]) -> list[Reading]:
    """How many rows of each table live, and how many are dead."""
    readings: list[Reading] = []
    for row in found:
        readings.append(Reading(known.LIVE_ROWS, {"table": row.table_name}, row.live))
        readings.append(Reading(known.DEAD_ROWS, {"table": row.table_name}, row.dead))
    return readings


def _named(found: Sequence[Any], name: Callable[[Any], Any], other: Any = OTHER) -> list[tuple[Any, list[Any]]]:
    """Each of the first so many by its name, and the rest together."""
    named = [(name(each), [each]) for each in found[:MOST_NAMES]]
    rest = list(found[MOST_NAMES:])
    return [*named, (other, rest)] if rest else named


PATIENCE = 30.0
"""Seconds of silence beyond an interval, after which the server gives the lock to somebody else."""
TRY_SECONDS = 60.0
"""How often the others try for the lock, at least: each try is a connection."""


class Shows(Protocol):
    """A recorder that has gauges."""

    def show(self, readings: Sequence[Reading]) -> None:
        """Show these in the place of those before."""

    def hide(self) -> None:
        """Show none: another process does."""


class Sampler:
    """The loop that asks.

    shows: the recorder.
    overview: whom to ask.
    names: of the queues' table or of the log, for the lock; one fleet has one.
    every: seconds from one question to the next.
    relay_status: what gives the relays' ages, where there are relays.
    log: the name of the log, if there is one.
    tables: tables whose dead rows are counted, by their quoted names.
    """

    def __init__(
        self,
        shows: Shows,
        overview: Overview,
        connections: Callable[[], DedicatedConnection],
        names: AnyNames,
        emitter: Events,
        *,
        every: float,
        has_queues: bool = True,
        log: str | None = None,
        tables: Sequence[str] = (),
        relay_status: Callable[[], Awaitable[Sequence[Any]]] | None = None,
    ) -> None:
        self._shows = shows
        self._overview = overview
        self._guard, self._connection = connections(), connections()
        self._sql = statements("sample", names)
        self._lock = names.channel
        self._events = emitter
        self._every = every
        self._tables = tables
        self._log = log
        self._relay_status = relay_status
        self._outages: dict[str, Outage] = {}
        self._guarding = Outage("sample", emitter)
        self._questions = self._asked(has_queues=has_queues)
        self._service = Service("outbox sampler", self.run, self._crashed, self._restored)
        self.is_leading = False
        """Whether this process shows the gauges."""

    def _asked(self, *, has_queues: bool) -> list[Question]:
        questions: list[Question] = []
        if has_queues:
            questions.append(("queues", self._queues))
        if self._log is not None:
            questions += [("groups", self._groups), ("gaps", self._gaps)]
        if self._relay_status is not None:
            questions.append(("relays", self._relays))
        return [*questions, ("processes", self._processes), ("rows", self._rows)]

    def start(self) -> None:
        """Begin to ask, unless it does so already."""
        self._service.start()

    async def stop(self) -> None:
        """Ask no more."""
        await self._service.stop()
        self._shows.hide()

    async def run(self) -> None:
        """Ask until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    await self._lead()
                    self._guarding.worked(loop.time())
                except Exception as error:  # noqa: BLE001 - reported, and tried again
                    self._guarding.failed(error, loop.time())
                finally:
                    self._yield()
                # Processes that were started together need not come together.
                await asyncio.sleep(max(self._every, TRY_SECONDS) * random.uniform(0.75, 1.25))
        finally:
            await self._close()

    async def _lead(self) -> None:
        """Ask for as long as the lock is ours; returns at once where it is not."""
        while True:
            # Each interval is a transaction of its own: none is old, and a lock that was lost is noticed.
            patience = self._every + PATIENCE
            async with self._guard.holding(
                self._sql["lock_sample"], {"name": self._lock}, idle_seconds=patience
            ) as ours:
                if not ours:
                    return
                self.is_leading = True
                began = monotonic()
                await self._sample()
                await asyncio.sleep(max(0.0, self._every - (monotonic() - began)))
                if monotonic() - began > patience:
                    # It stood still: by now somebody else has the lock.
                    return

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        readings, failed = await ask(self._questions)
        self._shows.show(readings)
        for name, _ in self._questions:
            outage = self._outages.get(name)
            if name in failed:
                outage = self._outages.setdefault(name, Outage(f"sample of {name}", self._events))
                outage.failed(failed[name], loop.time())
            elif outage is not None:
                outage.worked(loop.time())

    def _yield(self) -> None:
        if self.is_leading:
            self.is_leading = False
            self._shows.hide()

    async def _close(self) -> None:
        self._yield()
        await self._overview.close()
        await self._connection.close()

    async def _queues(self) -> Iterable[Reading]:
        return of_queues(await self._overview.queues())

    async def _groups(self) -> Iterable[Reading]:
        found = await self._overview.groups()
        return of_groups(found, await self._overview.blocked_keys(limit=MOST_KEYS))

    async def _gaps(self) -> Iterable[Reading]:
        return of_gaps(await self._overview.gaps(limit=1), self._log or "")

    async def _relays(self) -> Iterable[Reading]:
        return [] if self._relay_status is None else of_relays(await self._relay_status())

    async def _processes(self) -> Iterable[Reading]:
        return of_processes(await self._overview.processes())

    async def _rows(self) -> Iterable[Reading]:
        found = await self._connection.fetch(self._sql["rows"], {"tables": list(self._tables)})
        return of_rows(named(TableRowsRow, found))

    def _crashed(self, name: str, error: BaseException) -> None:
        self._events.emit(events.LoopCrashed(name, error))

    def _restored(self, name: str, seconds: float) -> None:
        self._events.emit(events.LoopRestored(name, seconds))
