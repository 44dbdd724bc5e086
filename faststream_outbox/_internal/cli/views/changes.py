"""Changes of queues and groups, one on a line."""

from collections.abc import Sequence
from datetime import datetime

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.cli.blocks import Block, Said
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.queues import QueueStatus

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
    began = f"{shown.moment(at)}  {name}"
    if after is None:
        return Said(f"{began}  gone: nothing is left of it")
    parts = [f"{label} {_delta(before, after, field)}" for label, field in numbers]
    return Said("  ".join([began, *parts, *(["paused"] if is_paused else [])]), "warning" if is_paused else "plain")


def _delta(before: Status | None, after: Status, field: str) -> str:
    now: int = getattr(after, field)
    then: int = now if before is None else getattr(before, field)
    return f"{now:,}" if now == then else f"{now:,} ({now - then:+,})"
