"""The names and tags that a `metrics_recorder` of `faststream-outbox` 0.19 hears."""

from typing import Any, get_args

from faststream_outbox import events
from faststream_outbox._internal.events.recorder import Recorded, calls, record
from faststream_outbox.events import Events
from tests.cases import each
from tests.events.samples import ERROR, OF_MESSAGE, SAMPLES

OF_WORKER = {"subscriber": "billing"}
TAGS = {"queue": "orders", "subscriber": "billing", "row_id": 17, "deliveries_count": 3}
PUBLISHED = {"queue": "orders", "count": 2, "size_bytes": 30, "duration_seconds": 0.001}
FAILED = {"exception_type": "ValueError"}

Calls = list[tuple[str, dict[str, Any]]]


@each(
    ("event", "expected"),
    [
        (events.Claimed("orders", "billing", 5), [("fetched", OF_WORKER | {"queue": "orders", "count": 5})]),
        (events.Started(**OF_MESSAGE, size_bytes=12), [("dispatched", TAGS | {"size_bytes": 12})]),
        (events.Handled(**OF_MESSAGE, duration_seconds=0.5), [("acked", TAGS | {"duration_seconds": 0.5})]),
        (
            events.Retried(**OF_MESSAGE, duration_seconds=0.5, delay_seconds=2.0, error=ERROR),
            [("nacked_retried", TAGS | {"duration_seconds": 0.5, "next_delay_seconds": 2.0} | FAILED)],
        ),
        (
            events.Retried(**OF_MESSAGE, duration_seconds=0.5, delay_seconds=2.0, error=None),
            [("nacked_retried", TAGS | {"duration_seconds": 0.5, "next_delay_seconds": 2.0})],
        ),
        (
            events.Died(**OF_MESSAGE, duration_seconds=0.5, reason="rejected", kept=True, error=ERROR),
            [
                ("nacked_terminal", TAGS | {"duration_seconds": 0.5, "reason": "rejected"} | FAILED),
                ("dlq_written", TAGS | {"failure_reason": "rejected"}),
            ],
        ),
        (
            events.Died(**OF_MESSAGE, duration_seconds=0.5, reason="rejected", kept=False, error=None),
            [("nacked_terminal", TAGS | {"duration_seconds": 0.5, "reason": "rejected"})],
        ),
        (events.LeaseWasLost(**OF_MESSAGE, phase="settling"), [("lease_lost", TAGS | {"phase": "settling"})]),
        (events.Released(**OF_MESSAGE, was_started=True), [("dispatch_abandoned", TAGS)]),
        (events.Released(**OF_MESSAGE, was_started=False), []),
        (events.Abandoned(**OF_MESSAGE), [("dispatch_abandoned", TAGS)]),
        (events.DrainTimedOut("billing", 15.0, 2), [("drain_timeout", OF_WORKER | {"drain_timeout_seconds": 15.0})]),
        (events.Published("orders", 2, 30, 0.001), [("published", PUBLISHED | {"status": "success"})]),
        (
            events.Published("orders", 2, 30, 0.001, ERROR),
            [("published", PUBLISHED | {"status": "error"} | FAILED)],
        ),
    ],
)
def test_event_is_these_calls(event: Any, expected: Calls) -> None:
    assert calls(event) == expected


def test_recorder_hears_every_event_that_it_knows_and_no_other() -> None:
    events, heard = Events(), []
    undo = record(events, lambda name, tags: heard.append((name, dict(tags))))
    for event in SAMPLES:
        events.emit(event)
    assert heard == [call for event in SAMPLES if isinstance(event, get_args(Recorded)) for call in calls(event)]
    undo()
    events.emit(SAMPLES[0])
    assert heard[-1][0] != "published"


def test_every_start_has_one_closing_call() -> None:
    # a gauge of running handlers counts one up at `dispatched` and one down at each of these
    closing = {"acked", "nacked_retried", "nacked_terminal", "lease_lost", "dispatch_abandoned"}
    started = [one for one in SAMPLES if isinstance(one, events.MessageEvent) and not isinstance(one, events.Started)]
    for event in started:
        assert len([name for name, _ in calls(event) if name in closing]) == 1  # type: ignore[arg-type]


def test_raising_recorder_does_not_disturb() -> None:
    events, heard = Events(), []

    def broken(name: str, tags: Any) -> None:
        raise ERROR

    record(events, broken)
    events.subscribe(heard.append)
    events.emit(SAMPLES[0])
    assert heard == SAMPLES[:1]
