"""How everything stands now, asked once for all who look, and how it stood in the last hour, for the charts.

The monitor begins with the first visitor and rests when nobody has come for a while: a dashboard that is mounted and
forgotten costs nothing. Every question has its own time limit; what is not answered is missing in the sample and said.
Samples are kept in memory, for as long as the process lives. Owned by `dashboard`, read by the screens.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from faststream_outbox._internal.dashboard.source import describe
from faststream_outbox._internal.doctor.finding import Finding
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.operator import Operator
from faststream_outbox._internal.overview.processes import Rates
from faststream_outbox._internal.overview.queues import QueueStatus

LENGTH = 720
"""Samples: an hour of them, five seconds apart."""
WINDOW = 6
"""Samples that a rate is measured over: the server learns of what its clients did seconds later."""
MOST_FOLLOWED = 100
"""Queues, and groups, whose own numbers are kept: those with the most."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How everything stood at one time."""

    at: datetime
    queues: Sequence[QueueStatus]
    groups: Sequence[GroupStatus]
    rates: Rates | None
    problem: str | None = None
    """Why something is missing in it."""


@dataclass(frozen=True, slots=True)
class Point:
    """What is kept of a sample."""

    at: float
    ready: int
    leased: int
    scheduled: int
    dead: int
    oldest: float
    lag: int
    lag_seconds: float
    rates: Rates | None
    of_queues: Mapping[str, int]
    """Ready messages of the busiest queues."""
    of_groups: Mapping[tuple[str, str], int]
    """Unread messages of the groups that are furthest behind."""


def point(sample: Sample) -> Point:
    """What is kept of a sample: sums, and the largest parts."""
    queues = sorted(sample.queues, key=lambda queue: -queue.ready)
    groups = sorted(sample.groups, key=lambda group: -group.messages)
    return Point(
        at=sample.at.timestamp(),
        ready=sum(queue.ready for queue in queues),
        leased=sum(queue.leased for queue in queues),
        scheduled=sum(queue.scheduled for queue in queues),
        dead=sum(queue.dead for queue in queues),
        oldest=max((queue.oldest_ready_seconds for queue in queues if not queue.is_paused), default=0.0),
        lag=sum(group.messages for group in groups),
        lag_seconds=max((group.seconds for group in groups if group.paused_since is None), default=0.0),
        rates=sample.rates,
        of_queues={queue.queue: queue.ready for queue in queues[:MOST_FOLLOWED]},
        of_groups={(group.group, group.uri): group.messages for group in groups[:MOST_FOLLOWED]},
    )


class History:
    """The points of the last hour."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=LENGTH)

    def add(self, sample: Sample) -> None:
        """Keep a sample, unless something is missing in it."""
        if sample.problem is None:
            self._points.append(point(sample))

    def __len__(self) -> int:
        return len(self._points)

    def series(self) -> dict[str, list[Any]]:
        """Columns for charts; rates are None where they are not known."""
        points = list(self._points)
        columns: dict[str, list[Any]] = {"at": [round(each.at, 1) for each in points]}
        for name in ("ready", "leased", "scheduled", "dead", "lag"):
            columns[name] = [getattr(each, name) for each in points]
        for name in ("oldest", "lag_seconds"):
            columns[name] = [round(getattr(each, name), 1) for each in points]
        for name in ("published", "handled", "died"):
            columns[name] = [None] * len(points)
        for place in range(len(points)):
            for name, value in smoothed(points[max(0, place - WINDOW + 1) : place + 1]).items():
                columns[name][place] = value
        return columns

    def rates(self) -> Mapping[str, float]:
        """What came and went a second lately; empty where that is not known yet."""
        return smoothed(list(self._points)[-WINDOW:])

    def of_queue(self, queue: str, length: int = 60) -> list[int]:
        """Ready messages of a queue, for its line in the table."""
        return [each.of_queues.get(queue, 0) for each in list(self._points)[-length:]]

    def of_group(self, group: str, uri: str, length: int = 60) -> list[int]:
        """Unread messages of a group."""
        return [each.of_groups.get((group, uri), 0) for each in list(self._points)[-length:]]


def smoothed(points: Sequence[Point]) -> dict[str, float]:
    """Messages a second over some points, each for as long as it was measured; empty where that is not known."""
    known = [each.rates for each in points if each.rates is not None and each.rates.published is not None]
    elapsed = sum(rates.seconds for rates in known)
    if elapsed <= 0:
        return {}
    sums = {
        "published": sum((rates.published or 0.0) * rates.seconds for rates in known),
        # A dead letter leaves the queue too.
        "handled": sum(((rates.finished or 0.0) - (rates.died or 0.0)) * rates.seconds for rates in known),
        "died": sum((rates.died or 0.0) * rates.seconds for rates in known),
    }
    return {name: round(max(0.0, value) / elapsed, 2) for name, value in sums.items()}


T = TypeVar("T")
logger = logging.getLogger("faststream_outbox.dashboard")

INTERVAL = 5.0
PATIENCE = 900.0
"""Seconds without a visitor after which it rests."""
FRESH = 2.0
"""Seconds for which an answer serves everybody."""
CHECKUP_INTERVAL = 60.0


class Monitor:
    """Samples of one source."""

    def __init__(self, source: Operator) -> None:
        self.history: History = History()
        self.findings: Sequence[Finding] = ()
        """What the doctor found last."""
        self.examined_at: datetime | None = None
        self.checkup_problem: str | None = None
        self._source = source
        self._latest: Sample | None = None
        self._seen = 0.0
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = self._examining = asyncio.Lock()

    @property
    def latest(self) -> Sample | None:
        """The last sample; None before the first visitor."""
        return self._latest

    def visit(self) -> None:
        """Somebody looks: sample for a while."""
        loop = asyncio.get_running_loop()
        self._seen = loop.time()
        if self._loop is not loop:
            self._loop, self._task = loop, None
            self._asking, self._examining = asyncio.Lock(), asyncio.Lock()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="outbox dashboard monitor")

    def forget(self) -> None:
        """Something was changed: the next sample is taken anew."""
        if self._latest is not None:
            self._latest = replace(self._latest, at=self._latest.at - timedelta(seconds=FRESH))

    async def sample(self) -> Sample:
        """How everything stands now, or did a moment ago."""
        async with self._asking:
            latest = self._latest
            if latest is None or (datetime.now(UTC) - latest.at).total_seconds() >= FRESH:
                latest = await self._ask()
        return latest

    async def checkup(self, *, max_age: float = CHECKUP_INTERVAL) -> Sequence[Finding]:
        """What the doctor finds, or found not long ago."""
        async with self._examining:
            age = None if self.examined_at is None else (datetime.now(UTC) - self.examined_at).total_seconds()
            if age is None or age >= max_age:
                found, self.checkup_problem = await _answer(self._source.doctor().examine())
                if found is not None:
                    self.findings = found
                self.examined_at = datetime.now(UTC)
        return self.findings

    async def _ask(self) -> Sample:
        tables, overview = self._source.tables, self._source.overview
        problems: list[str | None] = []
        rates, problem = await _answer(overview.rates()) if tables.table is not None else (None, None)
        problems.append(problem)
        queues, problem = await _answer(overview.queues()) if tables.table is not None else ((), None)
        problems.append(problem)
        groups, problem = await _answer(overview.groups()) if tables.log_tables is not None else ((), None)
        problems.append(problem)
        said = next((problem for problem in problems if problem is not None), None)
        self._latest = Sample(datetime.now(UTC), queues or (), groups or (), rates, said)
        self.history.add(self._latest)
        return self._latest

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while loop.time() - self._seen < PATIENCE:
                await self.sample()
                await self.checkup()
                await asyncio.sleep(INTERVAL)
        except Exception:
            # The next visitor starts it again.
            logger.exception("The dashboard's monitor stopped.")
        finally:
            await self._source.rest()

    async def close(self) -> None:
        """Stop, and close the connections."""
        task, self._task = self._task, None
        if task is not None and self._loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])
        await self._source.close()


async def _answer(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    """An answer, or why there is none."""
    try:
        return await asked, None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said on the screen
        return None, describe(error)
