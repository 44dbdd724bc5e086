"""`tail`: what changes in queues and groups, as it changes, a line for each change.

Added to the application by `app`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Block, Exit, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import parse_length
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.text import moment

Status = QueueStatus | GroupStatus


def change_lines(changes: Sequence[tuple[Status | None, Status | None]], at: datetime) -> list[Block]:
    """A line for each."""
    return [_line(before, after, at) for before, after in changes]


def _line(before: Status | None, after: Status | None, at: datetime) -> Said:
    status = after if after is not None else before
    if isinstance(status, QueueStatus):
        name = f"queue {status.queue!r}"
        numbers = [("ready", "ready"), ("leased", "leased"), ("scheduled", "scheduled"), ("dead", "dead")]
        is_paused = status.is_paused
    elif status is not None:
        name = f"group {status.group!r}" + (f" of {status.uri!r}" if status.uri else "")
        numbers = [("unread", "messages"), ("members", "members"), ("retrying", "retrying"), ("parked", "parked")]
        is_paused = status.paused_since is not None
    else:
        return Said("")
    began = f"{moment(at)}  {name}"
    if after is None:
        return Said(f"{began}  gone: nothing is left of it")
    parts = [f"{label} {_delta(before, after, field)}" for label, field in numbers]
    return Said("  ".join([began, *parts, *(["paused"] if is_paused else [])]), "warning" if is_paused else "plain")


def _delta(before: Status | None, after: Status, field: str) -> str:
    now: int = getattr(after, field)
    then: int = now if before is None else getattr(before, field)
    return f"{now:,}" if now == then else f"{now:,} ({now - then:+,})"


QUEUE_NUMBERS = ("ready", "leased", "scheduled", "dead", "is_paused")
GROUP_NUMBERS = ("messages", "members", "retrying", "deferred", "parked", "paused_since")
"""What counts as a change; ages change always."""


@dataclass(frozen=True, slots=True)
class Change:
    """A queue or a group whose numbers are other than before; None where it is new, or gone."""

    before: QueueStatus | GroupStatus | None
    after: QueueStatus | GroupStatus | None


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(tail)


async def tail(
    here: Here,
    interval: Annotated[timedelta, typer.Option(parser=parse_length, metavar="TIME", help="How often to look.")] = "2s",  # type: ignore[assignment]  # typer parses defaults too
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Look so often, then end.")] = None,
) -> Exit:
    """Print how queues and groups stand, then what changes, until Ctrl-C; with --json a line for each look."""
    seen: dict[tuple[str, ...], QueueStatus | GroupStatus] = {}
    looked = 0
    try:
        while True:
            now = await _look(here)
            changes = changed(seen, now)
            _print(here, changes)
            seen, looked = now, looked + 1
            if looked == count:
                return Exit.FINE
            await asyncio.sleep(max(0.1, interval.total_seconds()))
    except asyncio.CancelledError:
        return Exit.INTERRUPTED


async def _look(here: Here) -> dict[tuple[str, ...], QueueStatus | GroupStatus]:
    found: dict[tuple[str, ...], QueueStatus | GroupStatus] = {}
    overview = here.overview
    if here.tables.table is not None:
        found |= {("queue", each.queue): each for each in await overview.queues()}
    if here.tables.log_tables is not None:
        found |= {("group", each.group, each.uri): each for each in await overview.groups()}
    return found


def changed(
    before: dict[tuple[str, ...], QueueStatus | GroupStatus], after: dict[tuple[str, ...], QueueStatus | GroupStatus]
) -> list[Change]:
    """What is new, other or gone."""
    changes = [Change(before.get(name), status) for name, status in after.items()]
    gone = [Change(status, None) for name, status in before.items() if name not in after]
    return [each for each in [*changes, *gone] if _numbers(each.before) != _numbers(each.after)]


def _numbers(status: QueueStatus | GroupStatus | None) -> tuple[object, ...] | None:
    if status is None:
        return None
    names: Sequence[str] = QUEUE_NUMBERS if isinstance(status, QueueStatus) else GROUP_NUMBERS
    values = asdict(status)
    return tuple(values[name] for name in names)


def _print(here: Here, changes: list[Change]) -> None:
    at = datetime.now(UTC)
    if here.printer.as_json:
        of = [(each.after or each.before, each.after is None) for each in changes]
        data = {
            "at": at,
            "queues": [status for status, is_gone in of if isinstance(status, QueueStatus) and not is_gone],
            "groups": [status for status, is_gone in of if isinstance(status, GroupStatus) and not is_gone],
            "gone": [status for status, is_gone in of if is_gone],
        }
        here.printer.answer(Answer(data, []))
    elif changes:
        here.printer.answer(Answer(None, change_lines([(each.before, each.after) for each in changes], at)))
