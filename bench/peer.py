"""A peer as a process: its environment is installed when it is first needed, questions go in, answers come out.

Peers are the scripts of `bench/peers`. This package, its topics and the bare driver run in the environment that runs
the benchmark, all others in one of their own below `.venv-bench`.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
HOME = Path(__file__).parent
ENVIRONMENTS = ROOT / ".venv-bench"


class PeerFailed(Exception):
    """A peer answered with an error, or ended."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What is measured: a script, a title, and what it needs installed."""

    name: str
    title: str
    requires: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """The script that speaks for it."""
        return HOME / "peers" / f"{self.name}.py"

    def python(self) -> Path:
        """The interpreter that runs it; its environment is made when it is missing or of other versions."""
        if not self.requires:
            return Path(sys.executable)
        wanted = hashlib.sha256("\n".join([sys.version, *self.requires]).encode()).hexdigest()
        home = ENVIRONMENTS / self.name
        stamp, python = home / "installed", home / "bin" / "python"
        if not stamp.exists() or stamp.read_text() != wanted:
            print(f"installing {self.title} into {home.relative_to(ROOT)}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *self.requires], check=True)
            stamp.write_text(wanted)
        return python


@cache
def peers() -> dict[str, Peer]:
    """Every peer by its name."""
    known = [Peer("ours", "this package"), Peer("topics", "this package's topics"), Peer("raw", "bare asyncpg")]
    for name, facts in tomllib.loads((HOME / "peers" / "versions.toml").read_text()).items():
        known.append(Peer(name, facts["title"], tuple(facts["requires"])))
    return {peer.name: peer for peer in known}


class PeerProcess:
    """A running peer, connected to a database of its own."""

    def __init__(self, peer: Peer, dsn: str, postmaster: int) -> None:
        self.peer = peer
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        # What runs in an environment of its own must not find this package, which may have the name of its library.
        folders = [str(HOME / "track"), *([] if peer.requires else [str(ROOT)])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
        # -P: a script must not find itself under the name of the library that it imports.
        self._process = subprocess.Popen(
            [peer.python(), "-P", peer.script, dsn, str(postmaster)],
            env=environment,
            cwd=tempfile.gettempdir(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, **question: Any) -> dict[str, Any] | None:
        """Put a question and wait for the answer; None where the peer has no such thing."""
        self.put(**question)
        return self.answer()

    def put(self, **question: Any) -> None:
        """Put a question."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed(self._last_words()) from error

    def answer(self) -> dict[str, Any] | None:
        """Wait for the answer to the last question."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(self._last_words())
        found: dict[str, Any] | None = json.loads(line)
        if found is not None and "error" in found:
            raise PeerFailed(f"{self.peer.title}: {found['error']}")
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        return f"{self.peer.title} ended: {self._log.read()[-2000:].decode(errors='replace')}"
