"""The contracts of import-linter, which `make lint` checks, do catch what they are there for."""

import shutil
import subprocess
import sys
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
        ("_internal/log/sharing/spans.py", "from faststream_outbox._internal.log.sharing import leases", NO_CIRCLES),
        ("_internal/log/client.py", "def late(): from faststream_outbox._internal.log import reader", NO_CIRCLES),
        ("_internal/log/tail.py", "if TYPE_CHECKING: from faststream_outbox._internal.log import client", NO_CIRCLES),
        ("_internal/schema/__init__.py", "import faststream", "The engines do not know FastStream"),
        (
            "_internal/testing/__init__.py",
            "from faststream._internal import types",
            "FastStream's private modules come in through one door",
        ),
        ("_internal/memory/rows.py", "import faststream", "The engines do not know FastStream"),
        ("_internal/memory/rows.py", "import faststream_outbox._internal.broker.backend", "Arrows point down only"),
        ("_internal/broker/config.py", "import faststream_outbox._internal.broker.producer", NO_CIRCLES),
        (
            "_internal/broker/middlewares.py",
            "if TYPE_CHECKING:\n    from faststream_outbox._internal.broker.subscriber import OutboxSubscriber",
            NO_CIRCLES,
        ),
        (
            "_internal/memory/log.py",
            "def late() -> None:\n    import faststream_outbox._internal.memory.reader",
            NO_CIRCLES,
        ),
        ("_internal/testing/immediate.py", "import faststream_outbox._internal.testing.producer", NO_CIRCLES),
        ("_internal/queue/claim.py", "from faststream_outbox._internal.queue.worker import Worker", NO_CIRCLES),
        (
            "_internal/queue/options.py",
            "if TYPE_CHECKING:\n    from faststream_outbox._internal.queue.worker import Worker",
            NO_CIRCLES,
        ),
        (
            "_internal/queue/planning/keys.py",
            "def late() -> None:\n    from faststream_outbox._internal.queue.planning.claim_plan import ClaimPlan",
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
