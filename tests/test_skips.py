"""Skips of several runs are summed up by what they were for."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.skips import KEPT_IN, pytest_terminal_summary, sums

POOLER, TERMINAL = "no pgbouncer: apt-get install pgbouncer", "no pseudo-terminal"


def reporter(**reasons: str) -> pytest.TerminalReporter:
    reports = [SimpleNamespace(nodeid=test, longrepr=("f.py", 1, f"Skipped: {why}")) for test, why in reasons.items()]
    stats: dict[str, Any] = {"skipped": reports} if reports else {}
    return cast(pytest.TerminalReporter, SimpleNamespace(stats=stats))


def test_all_runs_are_summed_up_and_no_test_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "skips"
    monkeypatch.setenv(KEPT_IN, str(file))
    for run in (reporter(a=POOLER, b=TERMINAL), reporter(), reporter(a=POOLER, c=POOLER)):
        pytest_terminal_summary(run)
    told = subprocess.run([sys.executable, "-m", "tests.skips", file], capture_output=True, text=True, check=True)
    assert told.stdout == f"2 tests skipped: {POOLER}\n1 test skipped: {TERMINAL}\n"


def test_nothing_is_kept_unless_somebody_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEPT_IN, raising=False)
    pytest_terminal_summary(reporter(a=POOLER))
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_was_skipped_that_is_said() -> None:
    assert sums([]) == ["no test was skipped"]
