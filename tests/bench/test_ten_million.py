"""What a message costs does not grow with the rows beside it: pages and WAL of the server, at two sizes."""

import pytest

from bench.large_tables import large_stage
from bench.ten_million import CASES, cases_of, compared

SMALL, LARGE = 3000, 60_000

MOST = 1.6
"""An index of the larger size has one level more, which some statements pass through more than once. What reads the
rows themselves would cost twenty times as much."""


@pytest.mark.slow
async def test_cost_of_a_message_does_not_grow_with_the_table() -> None:
    parts = list(CASES)
    async with large_stage() as stage:
        sizes = {
            name: await stage.filled(name, rows, set(parts)) for name, rows in (("small", SMALL), ("large", LARGE))
        }
        found = await compared(stage, sizes, cases_of(parts), rounds=1)
    labels = list(cases_of(parts))
    assert len(found) == 2 * len(labels)
    # A message that comes again writes nothing at all.
    grown = {
        (label, figure): getattr(found[label, "large"][0], figure) / (getattr(found[label, "small"][0], figure) or 1)
        for label in labels
        for figure in ("pages", "wal")
    }
    assert {case: ratio for case, ratio in grown.items() if ratio >= MOST} == {}
