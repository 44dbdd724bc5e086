"""Where a private PostgreSQL is, and how to talk to it.

Made of plain values, so that another process (a worker of pytest-xdist, a child of a fault test) can
have the address of a server that it did not start. Used by `PostgresServer`, which is an address that
can also be ended.
"""

import os
import subprocess
from pathlib import Path

from sqlalchemy import URL

from faststream_outbox.errors import PostgresUnavailable

USER = "postgres"
HOST = "127.0.0.1"


class PostgresAddress:
    """A server that runs on this machine, its data and its programs."""

    def __init__(self, *, port: int, sockets: Path | str, data: Path | str, bin_path: Path | str) -> None:
        self.port = port
        self.sockets = Path(sockets)
        self.data = Path(data)
        self.bin_path = Path(bin_path)

    def values(self) -> dict[str, int | str]:
        """The arguments that make this address again in another process."""
        return {
            "port": self.port,
            "sockets": str(self.sockets),
            "data": str(self.data),
            "bin_path": str(self.bin_path),
        }

    @property
    def pid(self) -> int:
        """The process id of the postmaster; another one after a restart."""
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except FileNotFoundError as error:
            raise PostgresUnavailable(f"No server is running on {self.data}: call restart()") from error

    def dsn(self, database: str = "postgres", driver: str = "asyncpg") -> str:
        """An SQLAlchemy URL over TCP; `driver=""` leaves the driver out, as libpq wants it."""
        return _url(driver, database, host=HOST, port=self.port)

    def socket_dsn(self, database: str = "postgres", driver: str = "asyncpg") -> str:
        """An SQLAlchemy URL over the Unix socket."""
        return _url(driver, database, query={"host": str(self.sockets), "port": str(self.port)})

    def run(self, program: str, *args: str | Path, timeout: float = 120.0) -> str:
        """Runs `psql`, `pg_dump`, `pgbench`, … against this server and gives what it printed."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment |= {"PGHOST": HOST, "PGPORT": str(self.port), "PGUSER": USER}
        finished = subprocess.run(
            [self.bin_path / program, *args],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if finished.returncode != 0:
            raise PostgresUnavailable(f"{program} ended with code {finished.returncode}: {finished.stderr.strip()}")
        return finished.stdout

    def create_database(self, name: str) -> None:
        """Creates an empty database."""
        self.run("createdb", name)


def _url(
    driver: str,
    database: str,
    *,
    host: str | None = None,
    port: int | None = None,
    query: dict[str, str] | None = None,
) -> str:
    name = f"postgresql+{driver}" if driver else "postgresql"
    url = URL.create(name, username=USER, host=host, port=port, database=database, query=query or {})
    return url.render_as_string(hide_password=False)
