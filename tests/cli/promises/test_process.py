"""The command line as a process: its entry points, a terminal, Ctrl-C, and a reader that goes away."""

import json
import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.cli.stage import Stage
from tests.servers.programs import terminal

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0

pytestmark = pytest.mark.slow


def command(stage: Stage, *arguments: str, **options: object) -> "subprocess.Popen[bytes]":
    """A process of the command line."""
    environment = {**os.environ, "OUTBOX_DSN": stage.dsn, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    started: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-m", "faststream_outbox", *arguments],
        env=environment,
        cwd=ROOT,
        preexec_fn=_heed_ctrl_c,
        **options,
    )
    return started


def _heed_ctrl_c() -> None:
    # Whoever runs the tests in the background of a shell ignores it, and so would every process below.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """What a terminal shows until this is among it."""
    seen, until = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        assert ready, seen
        seen += os.read(descriptor, 4096)
    return seen


def rest_of(descriptor: int) -> bytes:
    """What a terminal shows until nobody writes to it any more."""
    seen = b""
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:
            return seen
        if not part:
            return seen
        seen += part


def test_the_script_and_the_module_are_the_same_program(stage: Stage) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["faststream-outbox"].partition(":")
    run = f"from {module} import {name}; {name}()"
    for program in (["-c", run], ["-m", "faststream_outbox"]):
        environment = {**os.environ, "OUTBOX_DSN": stage.dsn, "PYTHONPATH": str(ROOT)}
        arguments = [sys.executable, *program, "dead", "list", "--json"]
        done = subprocess.run(arguments, env=environment, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE)
        assert json.loads(done.stdout)["command"] == "dead list"


class TestCtrlC:
    def test_ends_a_replay_and_says_how_far_it_got(self, stage: Stage) -> None:
        stage.bury(50)
        running = command(stage, "dead", "replay", "--all", "--yes", "--rate", "1", "--json", stdout=subprocess.PIPE)
        until = time.monotonic() + PATIENCE
        while stage.dead() == 50 and time.monotonic() < until:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE)
        found = json.loads(out)
        assert (running.returncode, found["exit_code"]) == (130, 130)
        assert found["data"]["replayed"] >= 1
        assert stage.dead() == 50 - found["data"]["replayed"]

    def test_ends_a_tail(self, stage: Stage) -> None:
        running = command(stage, "tail", "--json", stdout=subprocess.PIPE)
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=PATIENCE)
        assert running.returncode == 130

    def test_answers_a_question(self, stage: Stage) -> None:
        """The event loop would only note it, and the question would stay."""
        stage.bury(2)
        ours, theirs = terminal()
        running = command(stage, "dead", "replay", "--all", stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        read_until(ours, b"[y/N]")
        running.send_signal(signal.SIGINT)
        assert b"nterrupted" in rest_of(ours)
        assert running.wait(PATIENCE) == 130
        os.close(ours)
        assert stage.dead() == 2


def test_a_terminal_is_asked_and_gets_tables(stage: Stage) -> None:
    stage.bury(2, queue="orders\x1b[31m")
    ours, theirs = terminal()
    running = command(stage, "dead", "replay", "--all", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = read_until(ours, b"[y/N]")
    os.write(ours, b"y\n")
    seen += rest_of(ours)
    assert running.wait(PATIENCE) == 0
    os.close(ours)
    assert "───".encode() in seen
    assert b"orders\\x1b[31m" in seen
    assert b"orders\x1b[31m" not in seen
    assert stage.dead() == 0


def test_a_reader_that_goes_away_is_no_traceback(stage: Stage) -> None:
    stage.sql(
        "insert into outbox (queue, payload) select 'orders', repeat('x', 5000)::bytea from generate_series(1, 300)"
    )
    running = command(
        stage, "peek", "orders", "--limit", "300", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.read(1)
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(PATIENCE) != 0
    assert b"Traceback" not in err


def test_without_its_extra_it_says_what_to_install() -> None:
    hide = "import sys; sys.modules['typer'] = None; from faststream_outbox.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", hide], env=environment, capture_output=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert b"needs typer" in done.stderr
