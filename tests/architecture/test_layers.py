"""The contracts of import-linter, which `make lint` checks, do catch what they are there for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINTER, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import faststream_outbox.schema", "Arrows point down only"),
        ("unplaced.py", "", "Arrows point down only"),
        ("schema/__init__.py", "import faststream", "The engines do not know FastStream"),
        (
            "testing/__init__.py",
            "from faststream._internal import types",
            "FastStream's private modules come in through one door",
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
