"""The demo adds up, says so by its exit code, and leaves no process behind, also when it is interrupted."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from examples.demo import COMMITTED
from examples.demo_account import Account
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
MARK = "OUTBOX_DEMO_MARK"

GOOD = Account(
    rolled_back=2,
    expected_retried=1,
    committed=10,
    handled=9,
    retried=1,
    taken_over=1,
    dead=1,
    waiting=0,
    lost=0,
    twice=0,
    invented=0,
    timers=1,
    timer_late_ms=3,
)


class Demo:
    """The demo as a process; everything that it starts inherits a mark in its environment."""

    def __init__(self) -> None:
        self.mark = uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "examples.demo"],
            cwd=ROOT,
            env=os.environ | {MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a process group of its own, which Ctrl-C can be sent to as a terminal does
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def left_behind(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def demo() -> Iterator[Demo]:
    demo = Demo()
    yield demo
    demo.end()


def test_good_account_has_no_faults() -> None:
    assert GOOD.faults() == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"handled": 8}, "every committed order was handled or is a dead letter"),
        ({"lost": 1}, "no order was lost"),
        ({"twice": 1}, "no order was handled twice"),
        ({"invented": 1}, "no message of a rolled back order was ever seen"),
        ({"retried": 0}, "every order that failed once was retried"),
        ({"dead": 2, "handled": 8}, "the poison order is the only dead letter"),
        ({"timers": 0}, "the timer fired once"),
        ({"waiting": 1}, "nothing is left in the outbox"),
    ],
)
def test_account_with_a_fault_names_it(change: dict[str, int], fault: str) -> None:
    assert replace(GOOD, **change).faults() == [f"not true: {fault}"]


@pytest.mark.slow
def test_demo_adds_up_and_leaves_no_process_behind(demo: Demo) -> None:
    text, _ = demo.process.communicate(timeout=100)
    account = {name: int(count) for name, count in re.findall(r"^ *(\S.*?)  +(\d+) *$", text, re.MULTILINE)}
    assert demo.process.returncode == 0, text
    wanted = {"orders committed": COMMITTED, "handled": COMMITTED - 1, "dead letters": 1, "lost": 0, "handled twice": 0}
    assert account.items() >= wanted.items(), text
    assert account["of these taken over from the killed worker"] > 0, text
    assert demo.left_behind() == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting a private PostgreSQL", "PostgreSQL runs", "worker 2 started", "killed"])
async def test_ctrl_c_leaves_no_process_behind(demo: Demo, moment: str) -> None:
    for line in demo.output:
        if moment in line:
            break
    assert demo.left_behind(), "the mark is not seen in the demo's own process"
    os.killpg(demo.process.pid, signal.SIGINT)
    text, _ = demo.process.communicate(timeout=60)
    assert demo.process.returncode == 130, text
    assert demo.left_behind() == []


@pytest.mark.slow
async def test_workers_and_server_do_not_outlive_a_killed_demo(demo: Demo) -> None:
    for line in demo.output:
        if "worker 2 started" in line:
            break
    demo.process.kill()
    demo.process.wait()
    await eventually(lambda: not demo.left_behind(), timeout=20, message="no process of the demo is left")
