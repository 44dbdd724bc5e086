"""A scenario: entries that are run in turn, round after round, and what each found.

An entry is a peer, a label and how to run it; its answer is a dictionary of numbers, of which `value` names the one
that is compared: a rate, or, for a list of milliseconds, percentiles of all rounds together.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.arena import Arena

Answer = dict[str, Any]
Run = Callable[[Arena, "Entry", float], Answer | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a scenario. `question` is put to the peer; counts in it grow with the scale."""

    peer: str
    label: str
    question: dict[str, Any] = field(default_factory=dict)
    run: Run | None = None
    is_limit: bool = False
    """Drawn as a limit and not as a peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A table and a plot of the report."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    value: str = "rate"
    unit: str = "messages a second"
    note: str = ""
    rounds: int | None = None
    """How many at most, where one already takes many samples."""
    server: str = ""
    """The variable of the environment that holds the address of a server without which it is left out."""


SCALED = ("messages",)


def ask(arena: Arena, entry: Entry, scale: float) -> Answer | None:
    """Put the entry's question to its peer."""
    return arena.peer(entry.peer).ask(**scaled(entry.question, scale))


def ask_at_rest(arena: Arena, entry: Entry, scale: float) -> Answer | None:
    """The same, when vacuum and the disk have done with what was filled in: that is no part of a drain."""
    question = scaled(entry.question, scale)
    peer = arena.peer(entry.peer)
    peer.ask(do="fill", messages=question["messages"], others=question.pop("others", 0))
    arena.come_to_rest(entry.peer)
    return peer.ask(**question, filled=True)


def ask_under_snapshot(arena: Arena, entry: Entry, scale: float) -> Answer | None:
    """The same, with an old snapshot held open for as long as it takes."""
    peer = arena.peer(entry.peer)
    with arena.held_snapshot(entry.peer):
        return peer.ask(**scaled(entry.question, scale))


def scaled(question: dict[str, Any], scale: float) -> dict[str, Any]:
    """The question with its counts multiplied, in whole thousands where there are thousands."""
    found = dict(question)
    least = 1000 if question.get("do") == "publish_many" else 100
    for name in SCALED:
        if name in found:
            count = int(found[name] * scale)
            found[name] = count // 1000 * 1000 if count >= 2000 else max(least, count)
    return found


@dataclass(slots=True)
class Found:
    """The answers of an entry, one for each round."""

    entry: Entry
    answers: list[Answer] = field(default_factory=list)
    error: str = ""

    def each(self, name: str) -> list[float]:
        """One number of each round."""
        return [float(answer[name]) for answer in self.answers]

    def median(self, name: str) -> float:
        """The median of the rounds."""
        return median(self.each(name))

    def spread(self, name: str) -> tuple[float, float]:
        """The least and the greatest of the rounds."""
        numbers = self.each(name)
        return min(numbers), max(numbers)

    def percentile(self, percent: float, name: str = "ms") -> float:
        """A percentile of the milliseconds of all rounds."""
        ordered = sorted(ms for answer in self.answers for ms in answer[name])
        return float(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))])
