"""The engines import and therefore work in a process that has no FastStream."""

import pkgutil
import subprocess
import sys

import pytest

from faststream_outbox import _internal

ENGINES = {
    "doctor",
    "envelope",
    "events",
    "log",
    "memory",
    "options",
    "outcomes",
    "overview",
    "publish",
    "queue",
    "schema",
    "service",
    "sql",
    "wakeup",
}

# Refuses FastStream as if it were not installed, then imports modules and everything below them.
SCRIPT = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "faststream" or name.startswith("faststream."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import faststream_outbox
for name in sys.argv[1:]:
    top = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(top, "__path__", []), f"{name}."):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
def test_engines_import_without_faststream() -> None:
    found = {module.name for module in pkgutil.iter_modules(_internal.__path__)}
    assert found >= ENGINES
    names = [f"faststream_outbox._internal.{name}" for name in sorted(ENGINES)]
    run = subprocess.run([sys.executable, "-c", SCRIPT, *names], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
