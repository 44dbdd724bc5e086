"""The contracts of import-linter, which `make lint` checks, do catch what they are there for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_CIRCLES = "No circles"
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINTER, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import faststream_outbox.schema", "Arrows point down only"),
        ("unplaced.py", "", "Arrows point down only"),
        ("log/sharing/spans.py", "from faststream_outbox.log.sharing import leases", NO_CIRCLES),
        ("log/client.py", "def late(): from faststream_outbox.log import reader", NO_CIRCLES),
        ("log/tail.py", "if TYPE_CHECKING: from faststream_outbox.log import client", NO_CIRCLES),
        ("schema/__init__.py", "import faststream", "The engines do not know FastStream"),
        (
            "testing/__init__.py",
            "from faststream._internal import types",
            "FastStream's private modules come in through one door",
        ),
        ("memory/rows.py", "import faststream", "The engines do not know FastStream"),
        ("memory/rows.py", "import faststream_outbox.broker.backend", "Arrows point down only"),
        ("broker/config.py", "import faststream_outbox.broker.producer", NO_CIRCLES),
        (
            "broker/middlewares.py",
            "if TYPE_CHECKING:\n    from faststream_outbox.broker.subscriber import OutboxSubscriber",
            NO_CIRCLES,
        ),
        ("memory/log.py", "def late() -> None:\n    import faststream_outbox.memory.reader", NO_CIRCLES),
        ("testing/immediate.py", "import faststream_outbox.testing.producer", NO_CIRCLES),
        ("queue/claim.py", "from faststream_outbox.queue.worker import Worker", NO_CIRCLES),
        (
            "queue/options.py",
            "if TYPE_CHECKING:\n    from faststream_outbox.queue.worker import Worker",
            NO_CIRCLES,
        ),
        (
            "queue/planning/keys.py",
            "def late() -> None:\n    from faststream_outbox.queue.planning.claim_plan import ClaimPlan",
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
