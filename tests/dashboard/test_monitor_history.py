"""What charts draw: sums, rates over half a minute, and the largest parts."""

from datetime import UTC, datetime, timedelta

from faststream_outbox._internal.dashboard.monitor import LENGTH, MOST_FOLLOWED, History, Sample
from faststream_outbox._internal.dashboard.rendering import sparkline
from faststream_outbox.overview import QueueStatus, Rates

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def queue(name: str, ready: int = 0, *, oldest: float = 0.0, is_paused: bool = False) -> QueueStatus:
    return QueueStatus(name, ready, 1, 2, 3, oldest, is_paused=is_paused, is_estimate=False)


def sample(step: int, *queues: QueueStatus, rates: Rates | None = None, problem: str | None = None) -> Sample:
    return Sample(START + timedelta(seconds=5 * step), queues, (), rates, problem)


def test_points_are_sums() -> None:
    history = History()
    history.add(
        sample(0, queue("a", 4, oldest=3.0), queue("b", 5, oldest=60.0), queue("c", 1, oldest=9000.0, is_paused=True))
    )
    series = history.series()
    assert (series["ready"], series["leased"], series["scheduled"], series["dead"]) == ([10], [6], [3], [9])
    assert series["oldest"] == [60.0], "what waits in a paused queue waits on purpose"
    assert history.of_queue("b") == [5]
    assert history.of_queue("unknown") == [0]


def test_sample_with_a_problem_is_not_drawn() -> None:
    history = History()
    history.add(sample(0, problem="The database does not answer."))
    assert len(history) == 0
    assert history.rates() == {}


def test_rates_are_measured_over_several_samples() -> None:
    history = History()
    history.add(sample(0, rates=Rates(None, None, None, 0.0)))
    assert history.rates() == {}
    history.add(sample(1, rates=Rates(10.0, 8.0, 2.0, 5.0)))
    history.add(sample(2, rates=Rates(40.0, 20.0, 0.0, 10.0)))
    assert history.rates() == {"published": 30.0, "handled": 15.33, "died": 0.67}
    assert history.series()["published"] == [None, 10.0, 30.0]


def test_history_has_an_end() -> None:
    history = History()
    for step in range(LENGTH + 5):
        history.add(sample(step, queue("a", step)))
    assert len(history) == LENGTH
    assert history.of_queue("a", 2) == [LENGTH + 3, LENGTH + 4]


def test_only_the_busiest_queues_are_followed() -> None:
    history = History()
    history.add(sample(0, *(queue(f"q{number}", number) for number in range(MOST_FOLLOWED + 1))))
    assert history.of_queue("q0") == [0]
    assert history.of_queue("q100") == [100]


def test_sparkline_is_in_its_box() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0, 0]) == ""
    assert sparkline([0, 5, 10]) == "0.0,22.0 60.0,12.0 120.0,2.0"
