"""What the checker makes of dead letters that were replayed."""

import pytest

from tests.faults.machine.checks import revived
from tests.faults.machine.facts import Arrival, Facts
from tests.faults.machine.runs import tell
from tests.faults.machine.stage import REVIVED
from tests.faults.machine.test_checker import ran, said


@pytest.mark.parametrize(
    ("attempts", "found"),
    [([1, 2, 3, 1], []), ([1, 2, 3, 2], []), ([2, 3, 1], []), ([1, 2, 3], ["lost"]), ([1, 1, 1], ["lost"])],
)
def test_a_letter_that_was_replayed_is_begun_anew(attempts: list[int], found: list[str]) -> None:
    runs = [
        each
        for number, attempt in enumerate(attempts)
        for each in ran("r1", number, number + 0.5, run=number, place=REVIVED, attempt=attempt, outcome="dead")
    ]
    story = tell([said(0.0, "committed", "r1"), *runs])
    wrongs = revived.check(story, Facts(arrivals=[Arrival("r1", REVIVED, times=2)]))
    assert [wrong.kind for wrong in wrongs] == found
