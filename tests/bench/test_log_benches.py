"""The benchmarks of the log that nobody runs often run at all: on small logs, to the end."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("log --rounds 1 --scale 0.01", "load of the machine before"),
        ("held_snapshot_log --ticks 50 --gaps 100", "100 gaps, publisher: the message after its end"),
        ("log_maintenance --rounds 1 --scale 0.003", "| seek |"),
        ("partitions --rounds 1 --few 2 --many 4 --rows 1500", "drop a partition of 1,500:"),
    ],
    ids=lambda value: value.split()[0],
)
def test_it_comes_to_its_end(command: str, last: str) -> None:
    module, *arguments = command.split()
    run = subprocess.run(
        [sys.executable, "-m", f"bench.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert last in run.stdout.splitlines()[-1]
