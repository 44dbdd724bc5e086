"""A server that is a process of its own, which a test may kill and start again under the same address."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.ports import answers, free_port


class ProcessServer:
    """Keeps what it has below its folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    async def _started(self, command: Sequence[str | Path], patience: float = 30.0, **options: Any) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **quiet, **options)
        await answers(self._port, patience)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
