"""An outage is reported when it begins, ever more seldom while it lasts, and when the last who failed works again."""

from itertools import pairwise
from typing import Any

from faststream_outbox._internal.events.outage import (
    FIRST_SILENCE,
    LONGEST_SILENCE,
    MOST_KINDS,
    OVER_SECONDS,
    Outage,
    Repeats,
)
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


def times(repeats: Repeats, seconds: int, text: str = "away", begin: int = 0) -> list[int]:
    """The seconds at which it is said, of an outage that is told of every second."""
    return [now for now in range(begin, begin + seconds) if repeats.is_news("claim", text, float(now))]


def test_silence_grows_up_to_a_limit() -> None:
    said = times(Repeats(), 20_000)
    pauses = [later - earlier for earlier, later in pairwise(said)]
    assert pauses[:4] == [FIRST_SILENCE, 2 * FIRST_SILENCE, 4 * FIRST_SILENCE, 8 * FIRST_SILENCE]
    assert max(pauses) == LONGEST_SILENCE


def test_other_text_and_other_matter_are_news() -> None:
    repeats = Repeats()
    assert times(repeats, 10) == [0]
    assert times(repeats, 10, "another", begin=10) == [10]
    assert repeats.is_news("settle", "another", 19.0)


def test_end_of_an_outage_makes_the_next_one_news() -> None:
    repeats = Repeats()
    assert times(repeats, 10) == [0]
    assert repeats.over("claim", 9.5) == 9.5
    assert repeats.over("claim", 9.5) is None
    assert times(repeats, 10, begin=10) == [10]


def test_what_was_not_heard_of_for_long_is_over() -> None:
    repeats = Repeats()
    assert times(repeats, 40) == [0, 30]
    begin = 40 + int(OVER_SECONDS)
    assert times(repeats, 40, begin=begin) == [begin, begin + 30]


def test_ways_to_fail_that_take_turns_are_news_once_each() -> None:
    repeats = Repeats()
    said = [now for now in range(25) if repeats.is_news("claim", "refused" if now % 2 else "away", float(now))]
    assert said == [0, 1]


def test_ways_to_fail_that_never_end_are_not_all_news() -> None:
    repeats = Repeats()
    assert [now for now in range(25) if repeats.is_news("claim", f"error {now}", float(now))] == [*range(MOST_KINDS)]
