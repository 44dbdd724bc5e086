"""A forked child is like one that was started: its own process with its own streams, and everything is imported."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.forked import IMPORTED, ROOT, Forked

pytestmark = pytest.mark.faults

PROGRAM = "tests.faults.telling_child"


async def line(child: Forked) -> Any:
    return json.loads(await child.stdout.readline())


async def test_it_has_imported_everything_and_is_told_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "now")
    with (tmp_path / "log").open("wb") as log:
        child = await Forked.start(PROGRAM, "0", stderr=log.fileno())
    told = await line(child)
    assert {*IMPORTED} - {*told.pop("imported")} == set()
    assert told == {"argv": ["0"], "cwd": str(ROOT), "given": "now", "threads": 1}
    child.send_signal(signal.SIGTERM)
    assert (await child.wait(), (tmp_path / "log").read_text(encoding="utf-8")) == (0, "complaint\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 3), (signal.SIGKILL, -9)])
async def test_its_end_is_told(number: int, code: int) -> None:
    child = await Forked.start(PROGRAM, "3")
    await line(child)
    assert child.returncode is None
    child.send_signal(number)
    assert (await child.wait(), child.returncode) == (code, code)
    child.send_signal(number)


async def test_children_die_alone_and_end_with_what_started_them() -> None:
    first, second = await Forked.start(PROGRAM, "0"), await Forked.start(PROGRAM, "0")
    for child in (first, second):
        await line(child)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    assert second.returncode is None
    # As if this process had ended: nobody else has the other end of its standard input.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, second._stdin)
    os.close(null)
    assert await second.wait() == 1
