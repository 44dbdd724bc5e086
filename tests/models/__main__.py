"""`python -m tests.models` prints the tables of `docs/models.md`; `--large` visits the large bounds too."""

import sys
from collections.abc import Iterator

from tests.models.bounds import LARGE, MISTAKES, SMALL
from tests.models.explorer import Explored, explore


def line(name: str, explored: Explored) -> str:
    """A line of the table of what is visited."""
    return f"| {name} | {explored.states:,} | {explored.steps:,} |"


def mistake(name: str, explored: Explored) -> str:
    """A mistake, and the shortest way to what comes of it."""
    return f"**{name}**: {explored.wrong}.\n`{'; '.join(explored.way)}`"


def lines(*, large: bool) -> Iterator[str]:
    """All that is printed."""
    for name, model in (SMALL | LARGE if large else SMALL).items():
        yield line(name, explore(model))
    for name, model in MISTAKES.items():
        yield mistake(name, explore(model))


if __name__ == "__main__":
    for text in lines(large="--large" in sys.argv):
        print(text, flush=True)
