"""An earlier `faststream-outbox` from PyPI, in a folder of its own: it has the import name of this package.

Only the package itself is installed, in about two seconds, and with 0.3 the FastStream that it knows; what else it
needs is there already. A process that has the folder first in its PYTHONPATH imports it instead of this package. Where
PyPI does not answer, the test is skipped, also with `OUTBOX_TEST_REQUIRE=1`: no package of the system brings it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LONGEST_SECONDS = 120
BESIDE = {"0.3.7": ["faststream==0.6.7"]}


def install(version: str, folder: Path) -> Path:
    """The folder that holds this version."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    wanted = [
        "--no-deps",
        "--no-compile",
        "--target",
        str(folder),
        f"faststream-outbox=={version}",
        *BESIDE.get(version, []),
    ]
    try:
        subprocess.run([*command, *wanted], check=True, capture_output=True, timeout=LONGEST_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"faststream-outbox {version} cannot be installed: PyPI does not answer")
    return folder
