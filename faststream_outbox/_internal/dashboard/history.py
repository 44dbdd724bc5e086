"""The last hour in samples: what the charts draw. Kept in memory, for as long as the process lives.

Pure but for the ring. Filled by `monitor`, read by the screens.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.overview.rates import Rates

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
