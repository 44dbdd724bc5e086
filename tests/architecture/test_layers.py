"""The contracts of import-linter, which `make lint` checks, do catch what they are there for."""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")
INTERNAL = "faststream_outbox._internal."
CIRCLE = f"No cycles are allowed in {INTERNAL}"
PRIVATE = "Illegal imports of protected package faststream._internal.types"

WRONG = [
    # module, what is added to it, what is said of that; no two of a checkout in the same words
    {
        ("errors.py", "import faststream_outbox._internal.schema"): f"errors -> {INTERNAL}schema",
        ("unplaced.py", ""): "not listed as layers: - faststream_outbox.unplaced",
        ("_internal/unplaced.py", ""): f"not listed as layers: - {INTERNAL}unplaced",
        ("_internal/sql/__init__.py", "import faststream_outbox.queue"): f"{INTERNAL}sql -> faststream_outbox.queue",
        ("_internal/log/sharing/slots.py", f"from {INTERNAL}log.sharing import leases"): f"{CIRCLE}log.sharing.",
        ("_internal/log/tail.py", f"def late(): from {INTERNAL}log import client"): f"{CIRCLE}log. It could",
        ("_internal/schema/__init__.py", "import faststream"): f"{INTERNAL}schema -> faststream (",
        ("_internal/testing/__init__.py", "from faststream._internal import types"): PRIVATE,
        ("_internal/memory/tables.py", "import faststream"): f"{INTERNAL}memory.tables -> faststream (",
        ("_internal/broker/backend.py", f"import {INTERNAL}broker.producer"): f"{CIRCLE}broker.",
        ("_internal/memory/log.py", f"def late() -> None:\n    import {INTERNAL}memory.client"): f"{CIRCLE}memory.",
        ("_internal/testing/delivering.py", f"import {INTERNAL}testing.producer"): f"{CIRCLE}testing.",
        ("_internal/queue/claim.py", f"from {INTERNAL}queue.worker import Worker"): f"{CIRCLE}queue.",
    },
    {
        ("_internal/memory/tables.py", f"import {INTERNAL}broker.backend"): f"{INTERNAL}memory.tables -> "
        f"{INTERNAL}broker.backend",
        (
            "_internal/queue/keys.py",
            f"def late() -> None:\n    from {INTERNAL}queue.plan import ClaimPlan",
        ): f"{CIRCLE}queue.",
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG, ids=["most", "the rest"])
def test_a_wrong_import_breaks_its_contract(tmp_path: Path, wrong: dict[tuple[str, str], str]) -> None:
    package = tmp_path / "faststream_outbox"
    shutil.copytree(ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in wrong:
        with (package / module).open("a") as file:
            file.write(f"\n{line}\n")
    run = subprocess.run([LINTER, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = " ".join(run.stdout.split())
    assert [place for place, words in wrong.items() if words not in said] == [], run.stdout


def named_for_typing(tree: ast.Module) -> Iterator[str]:
    """Modules of the package that are imported for annotations alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for found in node.body:
                if isinstance(found, ast.ImportFrom) and str(found.module).startswith("faststream_outbox"):
                    yield str(found.module)


@cache
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
