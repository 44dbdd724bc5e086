"""The page on scaling shows the example as it is, and budgets as they are."""

import json

from bench.budgets import BASELINE
from faststream_outbox._internal.log.sharing import slots
from tests.docs.pages import ROOT, parts, rows, text_of

PAGE = "docs/scaling.md"


def test_blocks_of_the_example_are_those_of_its_files() -> None:
    shown = [part for part in parts(PAGE) if part.reason is not None]
    assert len(shown) == 2
    for part in shown:
        assert part.reason is not None
        path = part.reason.removeprefix("from ")
        assert part.code in (ROOT / path).read_text(), path


def test_no_budget_of_wal_is_above_what_the_page_names() -> None:
    allowed = {case: limits["wal_bytes"] for case, limits in json.loads(BASELINE.read_text()).items()}
    named = {row[0]: float(row[1]) for row in rows(PAGE, "## One server") if row[0] in allowed}
    assert named.keys() == allowed.keys()
    assert all(allowed[case] <= named[case] < 1.3 * allowed[case] for case in allowed), (named, allowed)
    life = named["publish, one a transaction"] + named["drain, defaults, access log off"]
    assert f"{life:.0f} bytes" in text_of(PAGE)


def test_page_names_the_number_of_slots() -> None:
    assert f"A group of a topic has {slots.SLOTS}." in " ".join(text_of(PAGE).split())
