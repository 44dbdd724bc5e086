"""The engines import and therefore work in a process that has no FastStream."""

import pkgutil
import subprocess
import sys

import pytest

import faststream_outbox

ENGINES = {
    "envelope",
    "errors",
    "events",
    "log",
    "overview",
    "publish",
    "queue",
    "schema",
    "service",
    "sql",
    "wakeup",
}

# Refuses FastStream as if it were not installed, then imports a module and everything below it.
SCRIPT = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name == "faststream" or name.startswith("faststream."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
top = importlib.import_module(sys.argv[1])
if sys.argv[1] != "faststream_outbox" and hasattr(top, "__path__"):
    for module in pkgutil.walk_packages(top.__path__, top.__name__ + "."):
        importlib.import_module(module.name)
"""


def existing_engines() -> list[str]:
    found = {module.name for module in pkgutil.iter_modules(faststream_outbox.__path__)}
    return [f"faststream_outbox.{name}" for name in sorted(found & ENGINES)]


@pytest.mark.parametrize("module", ["faststream_outbox", *existing_engines()])
def test_imports_without_faststream(module: str) -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT, module], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
