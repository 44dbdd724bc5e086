"""Every state is visited once, the shortest way to a wrong one is told, and a state without a good end is found."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.models.explorer import End, explore, walk


@dataclass(frozen=True)
class Counter:
    """Counts up by one or two, to an end; may be caught in a trap."""

    last: int = 6
    bad: int = -1
    trap: int = -1

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[tuple[str, int]]:
        if state != self.trap:
            for add in (1, 2):
                if state + add <= self.last:
                    yield f"add {add}", state + add

    def wrong(self, state: int) -> str | None:
        return "bad" if state == self.bad else None

    def ends(self) -> Mapping[str, End[int]]:
        return {"stuck": End(lambda _: True, lambda state: state == self.last)}


def test_every_state_is_visited_once() -> None:
    explored = explore(Counter())
    assert (explored.states, explored.steps, explored.wrong) == (7, 11, None)


def test_the_shortest_way_to_what_is_wrong_is_told() -> None:
    explored = explore(Counter(bad=4))
    assert (explored.wrong, explored.way) == ("bad", ("add 2", "add 2"))


def test_a_state_from_which_no_good_end_is_reached_is_found() -> None:
    explored = explore(Counter(trap=5))
    assert (explored.wrong, explored.way) == ("stuck", ("add 1", "add 2", "add 2"))


def test_too_many_states_are_refused() -> None:
    with pytest.raises(RuntimeError, match="more than 3 states"):
        explore(Counter(), most=3)


def test_a_walk_is_the_same_for_the_same_seed_and_keeps_to_what_may_be_done() -> None:
    walks = [list(walk(Counter(), 7, 10, lambda _, name: name == "add 1")) for _ in range(2)]
    assert walks[0] == walks[1] == [("add 1", number) for number in range(1, 7)]
