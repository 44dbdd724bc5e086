"""The demo adds up, says so by its exit code, and leaves no process behind, also when it is interrupted."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from examples.demo.customers import PLAN
from tests.servers.programs import nats_server
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
MARK = "OUTBOX_DEMO_MARK"


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Demo:
    """The demo as a process; everything that it starts inherits a mark in its environment."""

    def __init__(self, *arguments: str) -> None:
        self.mark = uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "examples.demo", *arguments],
            cwd=ROOT,
            env=os.environ | {MARK: self.mark, "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # a process group of its own, which Ctrl-C can be sent to as a terminal does
            start_new_session=True,
            # whoever starts the tests in the background has them ignore Ctrl-C, and what they start too
            preexec_fn=_heed_ctrl_c,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def read_until(self, words: str) -> str:
        """Everything that is said, to the end of the first line with these words."""
        said = []
        for line in self.output:
            said.append(line)
            if words in line:
                return "".join(said)
        pytest.fail(f"the demo ended without saying {words!r}:\n{''.join(said)}")

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
def start_demo() -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(*arguments))
        return started[-1]

    yield start
    for demo in started:
        demo.end()


@pytest.mark.slow
def test_demo_adds_up_and_its_shop_answers_until_ctrl_c(start_demo: Callable[..., Demo]) -> None:
    nats_server()
    demo = start_demo("--keep")
    text = demo.read_until("The shop stays open at ")
    url = text.split("The shop stays open at ", 1)[1].split()[0]
    address = demo.read_until("address works once").split("works once): ", 1)[1].split()[0]
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(address, timeout=60) as answer:
        assert b"<h1>Overview</h1>" in answer.read()
    with urllib.request.urlopen(f"{url}/orders/1", timeout=60) as answer:
        assert b"Thank you." in answer.read()
    os.killpg(demo.process.pid, signal.SIGINT)
    rest, _ = demo.process.communicate(timeout=120)
    assert demo.process.returncode == 0, text + rest
    account = {name: int(count) for name, count in re.findall(r"^ *(\S.*?)  +(\d+) *$", text, re.MULTILINE)}
    wanted = {
        "orders committed": PLAN.committed,
        "receipts for orders": PLAN.committed - 1,
        "letters with a receipt": PLAN.committed - 1,
        "dead letters": 1,
        "lost": 0,
        "handled twice": 0,
        "invoices written at the far end": PLAN.committed,
        "orders without an invoice": 0,
        "orders with two invoices": 0,
    }
    assert account.items() >= wanted.items(), text
    assert account["of these taken over from the killed worker"] > 0, text
    assert demo.left_behind() == []


@pytest.mark.slow
def test_ctrl_c_at_the_beginning_leaves_no_process_behind(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo("--keep")
    demo.read_until("starting a private PostgreSQL")
    assert demo.left_behind(), "the mark is not seen in the demo's own process"
    os.killpg(demo.process.pid, signal.SIGINT)
    text, _ = demo.process.communicate(timeout=120)
    assert demo.process.returncode == 130, text
    assert demo.left_behind() == []


@pytest.mark.slow
def test_sigterm_leaves_no_process_behind(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    demo.read_until("worker 2 started")
    demo.process.terminate()
    text, _ = demo.process.communicate(timeout=120)
    assert demo.process.returncode == 130, text
    assert demo.left_behind() == []


@pytest.mark.slow
async def test_nothing_outlives_a_killed_demo(start_demo: Callable[..., Demo]) -> None:
    demo = start_demo()
    demo.read_until("the shop is open")
    demo.process.kill()
    demo.process.wait()
    await eventually(lambda: not demo.left_behind(), message="no process of the demo is left")
