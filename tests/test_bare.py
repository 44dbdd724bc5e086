"""A bare machine is judged by the reasons of its skips."""

import os
import subprocess

from tests.bare import HIDDEN, environment, judged

TOLD = [f"{part} apt-get install it" for part in HIDDEN]


def test_reasons_with_commands_for_everything_are_right() -> None:
    assert judged([*TOLD, "only root may mount a small file system"]) == []


def test_reason_without_a_command_is_wrong() -> None:
    assert judged([*TOLD, "no git: install it"]) == ["a skip names no command: no git: install it"]


def test_part_that_nobody_misses_is_wrong() -> None:
    assert judged(TOLD[1:]) == ["nobody was skipped for want of it: no NATS"]


def test_python_has_its_packages_there_and_nothing_else() -> None:
    code = "import pytest, shutil; print(*map(shutil.which, ['nats-server', 'redis-server', 'git']))"
    with environment() as programs:
        run = subprocess.run(
            [programs / "python", "-c", code], env=os.environ | {"PATH": str(programs)}, capture_output=True, check=True
        )
    assert run.stdout.split() == [b"None"] * 3
