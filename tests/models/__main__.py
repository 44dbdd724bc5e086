"""`python -m tests.models` prints the tables of `docs/models.md`; `--large` visits the large bounds too."""

import sys
from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap

from tests.models.bounds import LARGE, MISTAKES, SMALL
from tests.models.explorer import Explored, explore

WIDTH = 118


def line(name: str, explored: Explored) -> str:
    """A line of the table of what is visited."""
    return f"| {name} | {explored.states:,} | {explored.steps:,} |"


def mistake(name: str, explored: Explored) -> str:
    """A mistake, what comes of it, and one of the shortest ways there: who does what, one after the other."""
    steps = [step.split(": ") for step in explored.way]
    turns = [f"{who}: {', '.join(what for _, what in turn)}" for who, turn in groupby(steps, lambda step: step[0])]
    way = "\n".join(wrap("; ".join(turns), WIDTH))
    return f"**{name}**: {explored.wrong}.\n\n```text\n{way}\n```\n"


def lines(*, large: bool) -> Iterator[str]:
    """All that is printed."""
    for name, model in ({**SMALL, **LARGE} if large else SMALL).items():
        yield line(name, explore(model))
    for name, model in MISTAKES.items():
        yield mistake(name, explore(model))


if __name__ == "__main__":
    for text in lines(large="--large" in sys.argv):
        print(text, flush=True)
