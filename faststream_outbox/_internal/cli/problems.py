"""What is wrong with queues and groups, from their numbers alone: the last lines of `status`.

Pure. What a script wants to fail on it says itself; the doctor looks further.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.queues import QueueStatus

OLD_SECONDS = 60.0
"""The age of a message that is due from which on it is worth a line."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a script fails on; None is nothing."""

    age: timedelta | None = None
    dead: int | None = None
    parked: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to look at; critical is beyond a limit that was given."""

    severity: Literal["notice", "warning", "critical"]
    subject: str
    detail: str


def problems(queues: Sequence[QueueStatus], groups: Sequence[GroupStatus], limits: Limits) -> list[Problem]:
    """Everything that is wrong, the worst first."""
    found = [problem for queue in queues for problem in _of_queue(queue, limits)]
    found += [problem for group in groups for problem in _of_group(group, limits)]
    return sorted(found, key=lambda problem: ("critical", "warning", "notice").index(problem.severity))


def _of_queue(queue: QueueStatus, limits: Limits) -> Iterator[Problem]:
    subject = f"queue {queue.queue!r}"
    if queue.is_paused:
        yield Problem("notice", subject, f"paused, with {shown.counted(queue.ready, 'message')} ready")
    is_over = limits.age is not None and queue.oldest_ready_seconds > limits.age.total_seconds()
    if is_over or (queue.oldest_ready_seconds > OLD_SECONDS and not queue.is_paused):
        detail = f"the oldest message is due for {shown.age(queue.oldest_ready_seconds)}"
        yield Problem("critical" if is_over else "warning", subject, detail)
    is_over = limits.dead is not None and queue.dead > limits.dead
    if queue.dead or is_over:
        yield Problem("critical" if is_over else "warning", subject, shown.counted(queue.dead, "dead letter"))


def _of_group(group: GroupStatus, limits: Limits) -> Iterator[Problem]:
    subject = f"group {group.group!r}" + (f" of {group.uri!r}" if group.uri else "")
    is_over = limits.age is not None and group.messages > 0 and group.seconds > limits.age.total_seconds()
    behind = f"{shown.count(group.messages, is_estimate=group.is_estimate)} unread, {shown.age(group.seconds)} behind"
    if group.paused_since is not None:
        yield Problem("critical" if is_over else "notice", subject, f"paused since {shown.moment(group.paused_since)}")
    elif group.messages and not group.members:
        yield Problem("critical" if is_over else "warning", subject, f"nobody reads it: {behind}")
    elif is_over or (group.messages and group.seconds > OLD_SECONDS):
        yield Problem("critical" if is_over else "warning", subject, behind)
    is_over = limits.parked is not None and group.parked > limits.parked
    if group.parked or is_over:
        yield Problem("critical" if is_over else "warning", subject, f"{group.parked:,} parked")
