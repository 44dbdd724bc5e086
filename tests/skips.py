"""How many tests were skipped and what for, over all runs of pytest that `make test` consists of.

Each run adds its own to the file that `OUTBOX_TEST_SKIPS` names; `python -m tests.skips FILE` prints the sums. A test
that several runs have skipped counts once.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

KEPT_IN = "OUTBOX_TEST_SKIPS"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Keep what this run has skipped; workers of pytest-xdist have no such reporter."""
    if file := os.environ.get(KEPT_IN):
        with Path(file).open("a", encoding="utf-8") as kept:
            kept.writelines(json.dumps(one) + "\n" for one in skipped(terminalreporter))


def skipped(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, str]]:
    """The reason of each skip, and which test it was."""
    for report in reporter.stats.get("skipped", ()):
        where: Any = report.longrepr
        yield where[2].removeprefix("Skipped: "), report.nodeid


def sums(skips: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each reason, the most frequent first."""
    tests: dict[str, set[str]] = {}
    for reason, test in skips:
        tests.setdefault(reason, set()).add(test)
    counted = sorted(((len(names), reason) for reason, names in tests.items()), reverse=True)
    lines = [f"{count} {'test' if count == 1 else 'tests'} skipped: {reason}" for count, reason in counted]
    return lines or ["no test was skipped"]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    print(*sums(tuple(json.loads(line)) for line in lines), sep="\n")
