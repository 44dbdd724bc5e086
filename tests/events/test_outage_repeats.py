"""An outage is said when it begins, and then after ever longer times."""

from itertools import pairwise

from faststream_outbox._internal.events.outage import FIRST_SILENCE, LONGEST_SILENCE, MOST_KINDS, OVER_SECONDS, Repeats


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
