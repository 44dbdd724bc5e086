"""The contracts of import-linter, which `make lint` checks, do catch what they are there for."""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_CIRCLES = "No circles"
PUBLIC = "What is public stands on what is not"
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINTER, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import faststream_outbox._internal.schema", PUBLIC),
        ("unplaced.py", "", PUBLIC),
        ("_internal/unplaced.py", "", "Arrows point down only"),
        ("_internal/sql/__init__.py", "import faststream_outbox.queue", PUBLIC),
        ("_internal/log/sharing/slots.py", "from faststream_outbox._internal.log.sharing import leases", NO_CIRCLES),
        ("_internal/log/tail.py", "def late(): from faststream_outbox._internal.log import client", NO_CIRCLES),
        ("_internal/schema/__init__.py", "import faststream", "The engines do not know FastStream"),
        (
            "_internal/testing/__init__.py",
            "from faststream._internal import types",
            "FastStream's private modules come in through one door",
        ),
        ("_internal/memory/tables.py", "import faststream", "The engines do not know FastStream"),
        ("_internal/memory/tables.py", "import faststream_outbox._internal.broker.backend", "Arrows point down only"),
        ("_internal/broker/backend.py", "import faststream_outbox._internal.broker.producer", NO_CIRCLES),
        (
            "_internal/memory/log.py",
            "def late() -> None:\n    import faststream_outbox._internal.memory.client",
            NO_CIRCLES,
        ),
        ("_internal/testing/delivering.py", "import faststream_outbox._internal.testing.producer", NO_CIRCLES),
        ("_internal/queue/claim.py", "from faststream_outbox._internal.queue.worker import Worker", NO_CIRCLES),
        (
            "_internal/queue/keys.py",
            "def late() -> None:\n    from faststream_outbox._internal.queue.plan import ClaimPlan",
            NO_CIRCLES,
        ),
    ],
)
def test_a_wrong_import_breaks_its_contract(tmp_path: Path, module: str, line: str, contract: str) -> None:
    package = tmp_path / "faststream_outbox"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (package / module).open("a") as file:
        file.write(f"\n{line}\n")
    assert f"{contract} BROKEN" in lint(tmp_path).stdout


INTERNAL = "faststream_outbox._internal."


def named_for_typing(tree: ast.Module) -> Iterator[str]:
    """Modules of the package that are imported for annotations alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for found in node.body:
                if isinstance(found, ast.ImportFrom) and str(found.module).startswith("faststream_outbox"):
                    yield str(found.module)


def layers() -> dict[str, int]:
    """How high each folder of the package stands; the lowest is 0."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (rows,) = (each["layers"] for each in linter["contracts"] if each["name"] == "Arrows point down only")
    return {name.strip(" ()"): height for height, row in enumerate(reversed(rows)) for name in row.split("|")}


def strays(folder: str, source: str) -> list[str]:
    """Imports for typing in a module of a folder that leave it, and do not go down."""
    height = layers()
    return [
        name
        for name in named_for_typing(ast.parse(source))
        if not name.startswith(f"{INTERNAL}{folder}.")
        and height.get(name.removeprefix(INTERNAL).partition(".")[0], len(height)) >= height[folder]
    ]


def test_imports_for_typing_go_up_within_a_folder_only() -> None:
    package = ROOT / "faststream_outbox" / "_internal"
    found = {
        str(path.relative_to(package)): stray
        for path in package.rglob("*/*.py")
        if (stray := strays(path.relative_to(package).parts[0], path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_an_import_for_typing_that_goes_up_is_found() -> None:
    source = f"if TYPE_CHECKING:\n    from {INTERNAL}queue.worker import Worker\n    from os import PathLike\n"
    assert strays("queue", source) == strays("broker", source) == []
    assert strays("log", source) == strays("wakeup", source) == [f"{INTERNAL}queue.worker"]
    assert strays("broker", source.replace(INTERNAL, "faststream_outbox.")) == ["faststream_outbox.queue.worker"]
