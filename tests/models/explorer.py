"""Visits every state that a model can get into, and says what is wrong with one, or from where no good end is reached.

A model says how it starts, which steps each state allows, what is wrong with a state, and which ends must stay in
reach. A state is any value that can be compared and hashed. States are visited breadth first, each once, so the way to
the first wrong one is among the shortest. Used by the tests of models and by `__main__`, which prints the numbers.
"""

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

MOST_STATES = 400_000
"""More is no model to be visited whole while somebody waits for the tests."""


@dataclass(frozen=True, slots=True)
class End(Generic[State]):
    """An end that must be in reach of every state which `owes` it."""

    owes: Callable[[State], bool]
    is_reached: Callable[[State], bool]


class Model(Protocol[State]):
    """What is explored."""

    def start(self) -> State:
        """The first state."""
        ...

    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """What may happen next: a name, and the state after it."""
        ...

    def wrong(self, state: State) -> str | None:
        """What must never be so, if it is."""
        ...

    def ends(self) -> Mapping[str, End[State]]:
        """Ends, by what cannot be reached without them."""
        ...


@dataclass(frozen=True, slots=True)
class Explored:
    """What came of it: how much was visited, and the way to what is wrong, if anything is."""

    states: int
    steps: int
    wrong: str | None = None
    way: tuple[str, ...] = ()


def explore(model: Model[State], most: int = MOST_STATES) -> Explored:
    """Visit all states; ends at the first that is wrong."""
    start = model.start()
    came: dict[State, tuple[State, str] | None] = {start: None}
    before: dict[State, list[State]] = {}
    waiting = deque([start])
    steps = 0
    while waiting:
        state = waiting.popleft()
        wrong = model.wrong(state)
        if wrong is not None:
            return Explored(len(came), steps, wrong, _way(came, state))
        for name, after in model.steps(state):
            steps += 1
            before.setdefault(after, []).append(state)
            if after not in came:
                came[after] = (state, name)
                waiting.append(after)
        if len(came) > most:
            msg = f"more than {most} states: give the model fewer actors, or shorter lives"
            raise RuntimeError(msg)
    for name, end in model.ends().items():
        lost = _out_of_reach(came, before, end)
        if lost is not None:
            return Explored(len(came), steps, name, _way(came, lost))
    return Explored(len(came), steps)


def _out_of_reach(came: Iterable[State], before: Mapping[State, list[State]], end: End[State]) -> State | None:
    """The first state that owes the end and cannot get there."""
    near = deque(state for state in came if end.is_reached(state))
    reaching = set(near)
    while near:
        for state in before.get(near.popleft(), ()):
            if state not in reaching:
                reaching.add(state)
                near.append(state)
    return next((state for state in came if end.owes(state) and state not in reaching), None)


def _way(came: Mapping[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    step = came[state]
    while step is not None:
        state, name = step
        names.append(name)
        step = came[state]
    return tuple(reversed(names))


SELDOM = 0.05
"""How often a step that should be seldom is taken, beside one that should not."""


def walk(
    model: Model[State],
    seed: int,
    length: int,
    may: Callable[[State, str], bool] = lambda _, __: True,
    seldom: tuple[str, ...] = (),
) -> Iterator[tuple[str, State]]:
    """One way through the model at random, the same for the same seed.

    may: whether a step may be taken in a state.
    seldom: how steps end that are taken seldom, so that the others get somewhere.
    """
    dice = random.Random(seed)
    state = model.start()
    for _ in range(length):
        choices = [(name, after) for name, after in model.steps(state) if may(state, name)]
        if not choices:
            return
        weights = [SELDOM if name.endswith(seldom) else 1.0 for name, _ in choices]
        ((name, state),) = dice.choices(choices, weights)
        yield name, state
