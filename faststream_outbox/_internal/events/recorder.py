"""Events as `recorder(name, tags)` calls, the shape that `faststream-outbox` 0.19 had.

Lets a `metrics_recorder` written for it hear the same names and tags. Outcome calls come only after
the outcome was written.
"""

from collections.abc import Callable, Mapping
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events

MetricsRecorder = Callable[[str, Mapping[str, Any]], None]
"""A function that is called with the name and the tags of what happened."""

Recorded = (
    events.Claimed
    | events.Started
    | events.Handled
    | events.Retried
    | events.Died
    | events.LeaseWasLost
    | events.Released
    | events.OutcomeRefused
    | events.Abandoned
    | events.DrainTimedOut
    | events.Published
)


def _failure(error: BaseException | None) -> dict[str, Any]:
    return {} if error is None else {"exception_type": type(error).__name__}


def _age(event: events.Handled | events.Died) -> dict[str, Any]:
    return {} if event.age_seconds is None else {"age_seconds": event.age_seconds}


def calls(event: Recorded) -> list[tuple[str, dict[str, Any]]]:
    """The recorder calls that an event amounts to."""
    match event:
        case events.Claimed(queue=queue, worker=worker, count=count):
            return [("fetched", {"queue": queue, "subscriber": worker, "count": count})]
        case events.DrainTimedOut(worker=worker, seconds=seconds):
            return [("drain_timeout", {"subscriber": worker, "drain_timeout_seconds": seconds})]
        case events.Published():
            tags: dict[str, Any] = {
                "queue": event.queue,
                "status": "success" if event.error is None else "error",
                "count": event.count,
                "size_bytes": event.size_bytes,
                "duration_seconds": event.duration_seconds,
            }
            return [("published", tags | _failure(event.error))]
        case _:
            return _of_message(event)


def _of_message(
    event: events.Started
    | events.Handled
    | events.Retried
    | events.Died
    | events.LeaseWasLost
    | events.Released
    | events.OutcomeRefused
    | events.Abandoned,
) -> list[tuple[str, dict[str, Any]]]:
    tags: dict[str, Any] = {
        "queue": event.queue,
        "subscriber": event.worker,
        "row_id": event.id,
        "deliveries_count": event.deliveries_count,
    }
    if event.group:
        tags["group"] = event.group
    match event:
        case events.Started(size_bytes=size):
            return [("dispatched", tags | {"size_bytes": size})]
        case events.Handled(duration_seconds=duration):
            return [("acked", tags | {"duration_seconds": duration} | _age(event))]
        case events.Retried(delay_seconds=delay, duration_seconds=duration, error=error):
            more = {"next_delay_seconds": delay, "duration_seconds": duration}
            return [("nacked_retried", tags | more | _failure(error))]
        case events.Died(reason=reason, kept=kept, duration_seconds=duration, error=error):
            died = (
                "nacked_terminal",
                tags | {"reason": reason, "duration_seconds": duration} | _failure(error) | _age(event),
            )
            return [died, ("dlq_written", tags | {"failure_reason": reason})] if kept else [died]
        case events.LeaseWasLost(phase=phase):
            return [("lease_lost", tags | {"phase": phase})]
        case events.Released(was_started=True) | events.OutcomeRefused() | events.Abandoned():
            return [("dispatch_abandoned", tags)]
        case events.Released():
            return []


def record(events: Events, recorder: MetricsRecorder) -> Callable[[], None]:
    """Call `recorder` for each event that it knows, or let it listen itself; returns what undoes it."""
    listen: Any = getattr(recorder, "listen", None)
    if listen is not None:
        undo: Callable[[], None] = listen(events)
        return undo

    def hear(event: Recorded) -> None:
        for name, tags in calls(event):
            recorder(name, tags)

    return events.subscribe(hear, *Recorded.__args__)
