"""A PgBouncer in front of the test's database, which can be ended and started again."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL

from tests.publish.ways import plain
from tests.servers.ports import free_port
from tests.servers.programs import pgbouncer
from tests.waiting import eventually

CONFIGURATION = """
[databases]
{database} = host={host} port={port} dbname={database} user={user}{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {servers}
max_client_conn = 100
ignore_startup_parameters = extra_float_digits, options
server_login_retry = 1
"""


class Pooler:
    """A running PgBouncer; `url` is the database behind it."""

    def __init__(self, url: URL, file: Path) -> None:
        self.url = url
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._file.with_suffix(".log")
        # It refuses to run as root, and has read its file before it becomes somebody else.
        account = ["-u", "nobody"] if os.geteuid() == 0 else []
        with log.open("ab") as output:
            process = subprocess.Popen([pgbouncer(), *account, str(self._file)], stdout=output, stderr=output)
        self._process = process

        def connects() -> bool:
            try:
                psycopg.connect(plain(self.url), connect_timeout=2).close()
            except psycopg.OperationalError:
                return False
            return True

        async def answers() -> bool:
            """PgBouncer answers."""
            assert process.poll() is None, log.read_text()
            # In a thread: what stands behind it may be served by this event loop.
            return await asyncio.to_thread(connects)

        await eventually(answers)

    async def stop(self) -> None:
        """End it at once, whoever is connected."""
        if self._process is not None:
            # Asked politely by SIGINT it would wait for its clients.
            self._process.terminate()
            await asyncio.to_thread(self._process.wait, 10)
            self._process = None


@asynccontextmanager
async def pooled(url: URL, directory: Path, *, servers: int, mode: str = "transaction") -> AsyncIterator[Pooler]:
    """PgBouncer with so many connections to the server of `url`."""
    port = free_port()
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
            mode=mode,
        )
    )
    there = Pooler(url.set(host="127.0.0.1", port=port), file)
    try:
        await there.start()
        yield there
    finally:
        await there.stop()
