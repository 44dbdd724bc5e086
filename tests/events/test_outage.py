"""An outage is reported when it begins, seldom while it lasts, and when the last who failed works again."""

from typing import Any

from faststream_outbox._internal.events.outage import FIRST_SILENCE, Outage
from faststream_outbox._internal.events.types import StatementFailed, StatementWorks
from faststream_outbox.events import Events

ERROR = OSError("away")


class Reported(list[Any]):
    """What was emitted."""

    def __init__(self, **options: bool) -> None:
        events = Events()
        events.subscribe(self.append)
        self.outage = Outage("claim", events, **options)


def test_it_is_told_after_growing_times() -> None:
    reported = Reported()
    times = []
    for now in range(500):
        before = len(reported)
        reported.outage.failed(ERROR, float(now))
        if len(reported) > before:
            times.append(now)
    assert times == [0, 30, 90, 210, 450]
    reported.outage.worked(500.0)
    assert reported[-1] == StatementWorks("claim", 500.0)
    reported.outage.worked(501.0)
    assert len(reported) == 6


def test_each_failure_is_told_where_each_means_something() -> None:
    reported = Reported(tells_each=True)
    for now in range(5):
        reported.outage.failed(ERROR, float(now))
    assert reported == [StatementFailed("claim", ERROR)] * 5


def test_it_is_over_when_the_last_of_several_works() -> None:
    reported = Reported()
    reported.outage.failed(ERROR, 0.0, "one")
    reported.outage.failed(ERROR, 1.0, "other")
    reported.outage.worked(2.0, "one")
    reported.outage.worked(2.5, "a third")
    assert reported == [StatementFailed("claim", ERROR)]
    reported.outage.worked(3.0, "other")
    assert reported[-1] == StatementWorks("claim", 3.0)


def test_who_leaves_does_not_keep_it_open_and_does_not_end_it_aloud() -> None:
    reported = Reported()
    reported.outage.failed(ERROR, 0.0, "one")
    reported.outage.left("one")
    assert (len(reported), reported.outage.since) == (1, None)
    reported.outage.failed(ERROR, FIRST_SILENCE / 2, "other")
    assert len(reported) == 2
