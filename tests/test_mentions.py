"""Programs are seen through whatever mentions them."""

import asyncio
import os
import shutil
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from tests.cases import each
from tests.mentions import Mentions
from tests.servers import programs


def starts() -> None:
    subprocess.run(["git", "status"], check=True)


def imports_when_it_runs() -> Any:
    from tests.servers.rabbit_server import RabbitServer

    return RabbitServer


def asks_for_a_fixture(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("one_that_starts")


@pytest.fixture
def one_that_starts() -> None:
    starts()


class Caller:
    kinds = {"one": starts}

    def __init__(self) -> None:
        self.kind = "one"

    def call(self) -> None:
        self.kinds[self.kind]()


@each(
    "thing",
    [
        starts,
        lambda: shutil.which("git"),
        lambda: programs.promtool(),
        lambda: os.openpty(),
        lambda: partial(asyncio.create_subprocess_exec, "git"),
        lambda: subprocess.Popen([sys.executable, "-m", "examples.inbox"]),
        imports_when_it_runs,
        asks_for_a_fixture,
        Caller,
        Caller(),
        Caller().call,
        lambda: Caller(),
        {"library": "/usr/lib/x/faketime/libfaketime.so.1"},
    ],
)
def test_program_is_seen(thing: Any) -> None:
    assert Mentions().reach([thing])


@each("thing", [lambda: subprocess.run([sys.executable, "-c", "pass"]), "/usr/share", print, None, 15])
def test_python_and_what_starts_nothing_is_no_program(thing: Any) -> None:
    assert not Mentions().reach([thing])
