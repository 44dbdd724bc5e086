"""A RabbitMQ of the tests' own: Debian's, under a port, a name and a folder of its own.

`OUTBOX_TEST_AMQP` names another one, which is then not restarted.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.servers.missing import missing
from tests.servers.ports import answers, free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
BOOT_SECONDS = 120.0


class RabbitServer:
    """Keeps durable queues on disk, so that they outlive a kill."""

    def __init__(self, directory: Path) -> None:
        if not PROGRAM.exists():
            missing("no RabbitMQ: apt-get install rabbitmq-server, or set OUTBOX_TEST_AMQP=amqp://…")
        self._directory = directory
        self._port, self._distribution, self._epmd = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port}/"

    async def start(self) -> None:
        home = self._directory
        (home / "plugins").write_text("[].\n")
        (home / "settings.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{self._port}\n")
        settings = {
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"outbox{self._port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "ERL_EPMD_PORT": str(self._epmd),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "settings"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        self._process = subprocess.Popen(
            [PROGRAM],
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        await answers(self._port, BOOT_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            # The shell that started it and the virtual machine are one session; its own epmd has left that.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            self._end_epmd()

    def _end_epmd(self) -> None:
        """It refuses to end until it has noticed that its node is gone."""
        named = {**os.environ, "ERL_EPMD_PORT": str(self._epmd)}
        for _ in range(100):
            said = subprocess.run(["epmd", "-kill"], env=named, capture_output=True, text=True, check=False).stdout
            if "not allowed" not in said:
                return
            time.sleep(0.05)
