"""A private PostgreSQL that starts in a second, for tests, demos and benchmarks.

`PostgresServer.start()` makes a cluster in a temporary directory and serves it on a free port of
127.0.0.1 and on a Unix socket, as root and as an ordinary user, whatever else is installed. It can
be crashed and started again. It leaves nothing behind: at the end of its `with` block, at the end of
the interpreter, and also when the interpreter is killed, the server and its directory are gone.
"""

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from faststream_outbox._internal.testing.programs import (
    HOST,
    USER,
    PostgresAddress,
    find_programs,
    server_account,
    within_reach,
)
from faststream_outbox.errors import PostgresUnavailable

__all__ = ["PostgresAddress", "PostgresServer", "PostgresUnavailable"]

START_SECONDS = 60.0
STOP_SECONDS = 15.0

# Ports below those that Linux, macOS and Windows give to outgoing connections, so that nobody's
# connection takes the port of a crashed server before it is started again.
PORTS = range(15_000, 32_000)

# Waits for the end of its input, which comes when the process that started it has ended in whatever
# way. Then it ends the server, gives it five seconds, and removes the temporary directory.
WATCHDOG = """
read -r line
pid=$(head -n 1 "$1/postmaster.pid") && kill -QUIT "$pid"
tries=25
while [ -n "$pid" ] && [ "$tries" -gt 0 ] && kill -0 "$pid"; do
    tries=$((tries - 1))
    sleep 0.2
done
rm -rf -- "$2"
"""


class PostgresServer(PostgresAddress):
    """A server of our own: made by `start`, ended by `stop` or by leaving its `with` block."""

    def __init__(self, *, bin_path: Path, data: Path, temporary: Path, settings: Mapping[str, str], kept: bool) -> None:
        super().__init__(port=_free_port(), sockets=temporary, data=data, bin_path=bin_path)
        self.log: Path = temporary / "log"
        self._temporary = temporary
        self._settings = dict(settings)
        self._kept = kept
        self._account = server_account()
        self._owner = os.getpid()
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        *,
        version: int = 18,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Self:
        """Makes the cluster if there is none, starts the server and waits until it answers.

        With `directory`, the cluster lives in `directory/data` and is kept, and the next start finds it
        again. For root, that directory must be within reach of the account `nobody`.
        """
        bin_path = find_programs(version)
        temporary = Path(tempfile.mkdtemp(prefix="outbox-pg-"))
        data = (temporary if directory is None else directory.absolute()) / "data"
        server = cls(
            bin_path=bin_path,
            data=data,
            temporary=temporary,
            settings=settings or {},
            kept=directory is not None,
        )
        atexit.register(server.stop)
        try:
            server._watch()
            server._hand_over()
            server._make_cluster()
            server._launch()
        except BaseException:
            server.stop()
            raise
        return server

    def crash(self) -> None:
        """Ends the server at once, without a checkpoint, and waits until it is gone."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Starts the server again on the same port and data; ends it first if it still runs."""
        self._end(signal.SIGINT)
        self._launch()

    def stop(self) -> None:
        """Ends the server and removes its temporary directory. May be called again."""
        if os.getpid() != self._owner:
            # a forked child that ends must not take its parent's server along
            return
        self._end(signal.SIGINT if self._kept else signal.SIGQUIT)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        shutil.rmtree(self._temporary, ignore_errors=True)
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _watch(self) -> None:
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "watchdog", self.data, self._temporary],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # out of reach of the Ctrl-C that ends the process that it watches
            start_new_session=True,
        )

    def _hand_over(self) -> None:
        """Gives the directories to the account that the server runs as, and the programs with them."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._account is None:
            return
        for path in (self._temporary, self.data, *self.data.rglob("*")):
            os.chown(path, self._account.pw_uid, self._account.pw_gid, follow_symlinks=False)
        self.bin_path: Path = within_reach(self.bin_path, self._account, self._temporary / "programs")

    def _make_cluster(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        # C.UTF-8 sorts like C but is not C to the planner, and neither are the locales in production
        locale = "--locale=C.UTF-8" if sys.platform == "linux" else "--no-locale"
        made = self._popen("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", locale, "-N")
        try:
            code = made.wait()
        except BaseException:
            # Interrupted: initdb is the leader of a group of its own, and would go on filling the directory.
            os.killpg(made.pid, signal.SIGKILL)
            made.wait()
            raise
        if code != 0:
            raise PostgresUnavailable(f"initdb failed: {self._last_words()}")

    def _launch(self) -> None:
        options = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": str(self.sockets),
            **self._settings,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        self._postmaster = self._popen("postgres", "-D", self.data, *arguments)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(self._postmaster.pid):
            if self._postmaster.poll() is not None:
                self._postmaster = None
                raise PostgresUnavailable(f"The server did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise PostgresUnavailable(f"The server did not answer in {START_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(0.01)

    def _answers(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # a crash may have left the file of an earlier server; the last line is the server's state
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _end(self, how: signal.Signals) -> None:
        if self._postmaster is None:
            return
        for number in (how, signal.SIGQUIT, signal.SIGKILL):
            self._postmaster.send_signal(number)
            try:
                self._postmaster.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        self._postmaster = None

    def _popen(self, program: str, *args: str | Path) -> subprocess.Popen[bytes]:
        account = self._account
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self.bin_path / program, *args],
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                cwd=self._temporary,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
            )

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].strip()


def _free_port() -> int:
    for port in random.sample(PORTS, 100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise PostgresUnavailable(f"No free port of {HOST} between {PORTS.start} and {PORTS.stop}")
