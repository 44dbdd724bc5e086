"""A PgBouncer in transaction mode in front of the test's database."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL

from tests.publish.ways import plain
from tests.waiting import eventually

CONFIGURATION = """
[databases]
{database} = host={host} port={port} dbname={database} user={user}{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 100
ignore_startup_parameters = extra_float_digits, options
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def pooled(url: URL, directory: Path, *, servers: int) -> AsyncIterator[URL]:
    """The address of the same database behind PgBouncer with so many connections to the server."""
    port = _free_port()
    file = directory / "pgbouncer.ini"
    file.write_text(
        CONFIGURATION.format(
            database=url.database,
            host=url.host,
            port=url.port or 5432,
            user=url.username,
            password=f" password={url.password}" if url.password else "",
            listen_port=port,
            servers=servers,
        )
    )
    # it refuses to run as root, and has read its file before it becomes somebody else
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    log = (directory / "pgbouncer.log").open("wb")
    process = subprocess.Popen(["pgbouncer", *account, str(file)], stdout=log, stderr=log)
    there = url.set(host="127.0.0.1", port=port)
    try:

        def answers() -> bool:
            """PgBouncer answers."""
            assert process.poll() is None, (directory / "pgbouncer.log").read_text()
            try:
                psycopg.connect(plain(there), connect_timeout=2).close()
            except psycopg.OperationalError:
                return False
            return True

        await eventually(answers)
        yield there
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)
        log.close()
