"""Asks how everything stands, once for all who look, and keeps on asking while somebody does.

Begins with the first visitor and rests when nobody has come for a while: a dashboard that is mounted and forgotten
costs nothing. Every question has its own time limit; what is not answered is missing in the sample and said. Owned by
`dashboard`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from faststream_outbox._internal.dashboard.history import History, Sample
from faststream_outbox._internal.dashboard.source import Source
from faststream_outbox._internal.dashboard.trouble import describe
from faststream_outbox._internal.doctor.finding import Finding

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

    def __init__(self, source: Source) -> None:
        self.history = History()
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
        await self._source.rest()


async def _answer(asked: Awaitable[T]) -> tuple[T | None, str | None]:
    """An answer, or why there is none."""
    try:
        return await asked, None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said on the screen
        return None, describe(error)
