"""Replays that were started here, and the dead letters that an address means.

A replay is a task that can be followed and cancelled, and is kept for a while after its end. Replays live in the memory
of this process: whatever was put back stays back when one is cancelled, or when the process ends; the rest stays dead
and can be selected again. Owned by `dashboard`, used by the screens of dead letters, which all read their selection
from an address or a form by `chosen`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import Literal

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.dashboard.source import describe
from faststream_outbox._internal.queue.dead_letters import DeadLetters, Replay, Selection
from faststream_outbox._internal.text import parsed_moment, parsed_number
from faststream_outbox.errors import InvalidOption

MOST_KEPT = 50
MOST_RUNNING = 8
STEP_SECONDS = 10.0
FIRST_RATE = 1.0
MOST_CONFLICTS = 100
"""Conflicts whose ids are shown."""


def ramped(replayed: int, top: float, first: float = FIRST_RATE, step_seconds: float = STEP_SECONDS) -> float:
    """The rate after so many messages of a replay that begins slowly: it doubles every ten seconds, up to `top`."""
    rate, behind = min(first, top), 0.0
    while rate < top:
        behind += rate * step_seconds
        if replayed < behind:
            return rate
        rate = min(top, rate * 2)
    return rate


@dataclass(slots=True)
class Run:
    """One replay."""

    id: str
    selection: Selection
    said: Mapping[str, str]
    """The selection, as the form had it."""
    up_to: int
    """The newest dead letter that is part of it."""
    expected: int
    rate: float | None
    ramps: bool
    user: str
    started_at: datetime
    state: Literal["running", "done", "cancelled", "failed"] = "running"
    progress: Replay = field(default_factory=lambda: Replay(0))
    ended_at: datetime | None = None
    error: str | None = None

    @property
    def settled(self) -> int:
        """Those that are back, and those that could not."""
        return self.progress.replayed + len(self.progress.conflicts)

    @property
    def total(self) -> int:
        """How many it is about: what was counted, until it has frozen its own set."""
        return self.progress.selected or self.expected

    @property
    def rate_now(self) -> float | None:
        """Messages a second at this point."""
        if self.rate is None or not self.ramps:
            return self.rate
        return ramped(self.settled, self.rate)


class Replays:
    """The replays of this process."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def all(self) -> Sequence[Run]:
        """The newest first."""
        return list(reversed(self._runs.values()))

    def get(self, run_id: str) -> Run | None:
        """One of them."""
        return self._runs.get(run_id)

    def start(
        self,
        letters: DeadLetters,
        selection: Selection,
        *,
        said: Mapping[str, str],
        up_to: int,
        expected: int,
        rate: float | None,
        ramps: bool,
        user: str,
    ) -> Run:
        """Begin to replay; returns at once."""
        if len(self._tasks) >= MOST_RUNNING:
            msg = f"{MOST_RUNNING} replays run already: wait for one, or cancel it."
            raise InvalidOption(msg)
        run = Run(token_urlsafe(9), selection, said, up_to, expected, rate, ramps, user, datetime.now(UTC))
        self._runs[run.id] = run
        for old in [each.id for each in self._runs.values() if each.state != "running"][: len(self._runs) - MOST_KEPT]:
            del self._runs[old]
        pace: Callable[[Replay], float] | float | None = rate
        if rate is not None and ramps:
            pace = lambda progress: ramped(progress.replayed + len(progress.conflicts), rate)  # noqa: E731 - has a closure
        task = asyncio.get_running_loop().create_task(self._follow(run, letters, pace), name="outbox dashboard replay")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))
        return run

    async def _follow(self, run: Run, letters: DeadLetters, pace: Callable[[Replay], float] | float | None) -> None:
        def heard(progress: Replay) -> None:
            run.progress = progress

        try:
            run.progress = await letters.replay(run.selection, rate=pace, on_progress=heard, up_to=run.up_to)
            run.state = "done"
        except asyncio.CancelledError:
            run.state = "cancelled"
        except Exception as error:  # noqa: BLE001 - said on its screen
            run.state, run.error = "failed", describe(error)
        finally:
            run.ended_at = datetime.now(UTC)

    async def cancel(self, run_id: str) -> bool:
        """Stop one now, each message either back or dead; False if it does not run."""
        task = self._tasks.get(run_id)
        if task is None:
            return False
        task.cancel()
        await asyncio.wait([task])
        return True

    async def close(self) -> None:
        """Stop all."""
        for run_id in list(self._tasks):
            await self.cancel(run_id)


FIELDS = ("queue", "error_type", "reason", "key", "since", "until", "ids")
MOST_IDS = 1000


@dataclass(frozen=True, slots=True)
class Chosen:
    """A selection, and the fields that it was made from."""

    selection: Selection
    fields: Mapping[str, str]
    """For addresses and hidden fields; empty where everything is meant."""

    @property
    def is_narrow(self) -> bool:
        """Whether anything was said."""
        return bool(self.fields)


def chosen(given: Mapping[str, str], ids: tuple[str, ...] = ()) -> Chosen:
    """The selection that fields of an address or a form say; raises `Refused`."""
    fields = {name: given[name].strip() for name in FIELDS if given.get(name, "").strip()}
    if ids:
        fields["ids"] = ",".join(ids)
    narrowed = Selection(
        ids=_ids(fields.get("ids")),
        queue=fields.get("queue"),
        key=fields.get("key"),
        reason=fields.get("reason"),
        error_type=fields.get("error_type"),
        since=_moment(fields.get("since")),
        until=_moment(fields.get("until")),
        everything=not fields,
    )
    return Chosen(narrowed, fields)


def _ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    ids = [parsed_number(part.strip()) for part in text.split(",")]
    found = [each for each in ids if each is not None]
    if len(ids) > MOST_IDS or len(found) < len(ids):
        raise Refused(400, "Which dead letters?", f"ids are at most {MOST_IDS} numbers with commas between them.")
    return found


def _moment(text: str | None) -> datetime | None:
    """A time of a form; one without a time zone is UTC, as all times on the screens."""
    if text is None:
        return None
    moment = parsed_moment(text)
    if moment is None:
        raise Refused(400, "Which time?", f"{text!r} is none: write 2026-03-01T12:30.")
    return moment
