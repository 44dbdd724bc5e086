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
    "effects": 3456,
    "dead letters": 45,
    "leases taken over": 17,
    "spans taken over": 18,
    "faults": {"child killed": 3, "line slow": 2},
    "faults left out": {"disk full": "no loop device"},
    "wrong": {"lost": 0, "order": 2},
    "memory": {"worker": [95, 97]},
}
SHORT = {**REPORT, "seed": 1, "minutes": 5.0, "faults": {"child killed": 1}, "memory": {"worker": [1, 2]}}
RECOVERY = [{"fault": "failover", "driver": "asyncpg", "tries": 5, "half within ms": 180, "longest ms": 1216}]


def test_where_there_is_no_report_the_page_says_so(tmp_path: Path) -> None:
    assert reports(tmp_path) == {}
    assert rewritten(PAGE, {}) == f"before\n<!-- begin: runs -->\n\n{NONE_YET}\n\n<!-- end: runs -->\nafter\n"


def test_reports_are_shown(tmp_path: Path) -> None:
    for name, report in {"a": SHORT, "b": REPORT, "recovery": RECOVERY}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    page = rewritten(PAGE, reports(tmp_path))
    long = page.index("| 7 | 60 | 12,345 | 23,456 | 3,456 | 45 | 5 | 17, 18 | 2 |")
    assert long < page.index("| 1 | 5 | 12,345 |")
    assert "| order | 4 |" in page
    assert "| child killed | 4 |\n| line slow | 2 |" in page
    assert "disk full (no loop device)" in page
    assert "| worker | 95 | 97 |" in page
    assert "| failover | asyncpg | 5 | 180 | 1,216 |" in page


def test_it_can_be_written_again() -> None:
    once = rewritten(PAGE, {"hour": REPORT})
    assert rewritten(once, {"hour": REPORT}) == once


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the runs"):
        rewritten("nothing", {})
