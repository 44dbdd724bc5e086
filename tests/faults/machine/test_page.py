"""The page of reliability shows what the reports say, and says so where there are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.machine.page import NONE_YET, reports, rewritten

PAGE = "before\n<!-- begin: runs -->\nwhatever\n<!-- end: runs -->\nafter\n"
REPORT: dict[str, Any] = {
    "seed": 7,
    "minutes": 60.0,
    "committed": 12345,
    "runs": 23456,
    "leases taken over": 17,
    "faults": {"child killed": 3, "line slow": 2},
    "faults left out": {"disk full": "no loop device"},
    "wrong": {"lost": 0, "order": 2},
    "recovery": {
        "child killed": {
            "count": 3,
            "seconds": {"worker": {"p50": 0.2, "max": 4.0}, "member": {"p50": 1.0, "max": 2.0}},
        }
    },
}


def test_where_there_is_no_report_the_page_says_so(tmp_path: Path) -> None:
    assert reports(tmp_path) == {}
    assert rewritten(PAGE, {}) == f"before\n<!-- begin: runs -->\n\n{NONE_YET}\n\n<!-- end: runs -->\nafter\n"


def test_a_report_is_shown(tmp_path: Path) -> None:
    (tmp_path / "hour.json").write_text(json.dumps(REPORT))
    page = rewritten(PAGE, reports(tmp_path))
    assert "| hour | 60 | 7 | 12,345 | 23,456 | 5 | 17 | 2 |" in page
    assert "| order | 2 |" in page
    assert "| child killed | 3 | 1.0 s | 4.0 s |" in page
    assert "| line slow | 2 |  |  |" in page
    assert "disk full (no loop device)" in page


def test_it_can_be_written_again() -> None:
    once = rewritten(PAGE, {"hour": REPORT})
    assert rewritten(once, {"hour": REPORT}) == once


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the runs"):
        rewritten("nothing", {})
