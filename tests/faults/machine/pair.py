"""A PostgreSQL and the standby that follows it, which can be restarted and change places.

A commit is acknowledged only when the standby has applied it, so that a failover loses nothing that anybody was
told of. Made by `World`, which is the only one to call it.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import psycopg

from faststream_outbox.testing.postgres import PostgresServer, PostgresUnavailable

APPLICATION = "app"
"""The role and the database of everything that is under test. No superuser, as in production: a few connections
are kept for those who break things and for those who look."""

PATIENCE = 60.0

SETTINGS = {
    # Nothing here kills the kernel, and what is written to a file survives every other death.
    "fsync": "off",
    "synchronous_commit": "remote_apply",
    "max_connections": "120",
    "superuser_reserved_connections": "10",
    "max_prepared_transactions": "10",
    "wal_keep_size": "512MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
    "allow_in_place_tablespaces": "on",
    "log_min_messages": "fatal",
}


Ending = Literal["fast", "immediate", "sigquit"]
"""How a server ends: asked to end its sessions first, or at once without a checkpoint. What `pg_ctl` calls
immediate is SIGQUIT to the postmaster: the last two are one thing under two names."""


class Pair:
    """The present primary, and the standby if there is to be one."""

    def __init__(self, primary: PostgresServer, directory: Path, settings: dict[str, str]) -> None:
        self.primary = primary
        self.standby: PostgresServer | None = None
        self._directory = directory
        self._settings = settings
        self._gone: list[PostgresServer] = []

    @classmethod
    def start(cls, *, standby: bool, settings: dict[str, str] | None = None) -> Self:
        """Start one server or two. Blocks for some seconds."""
        all_settings = SETTINGS | (settings or {})
        directory = Path(tempfile.mkdtemp(prefix="outbox-pair-"))
        directory.chmod(0o755)
        pair = cls(PostgresServer.start(settings=all_settings), directory, all_settings)
        try:
            pair.ask(f"create role {APPLICATION} login", database="postgres")
            pair.ask(f"create database {APPLICATION} owner {APPLICATION}", database="postgres")
            if standby:
                pair.follow()
        except BaseException:
            pair.stop()
            raise
        return pair

    def superuser(self, database: str = APPLICATION) -> str:
        """The libpq address of the primary for those who may do everything."""
        return self.primary.dsn(database, driver="")

    def application(self) -> str:
        """The libpq address of the primary for what is under test."""
        return self.superuser().replace("//postgres@", f"//{APPLICATION}@")

    def ask(self, question: str, *, database: str = APPLICATION) -> list[tuple[Any, ...]]:
        """Rows that the primary answers."""
        return _ask(self.superuser(database), question)

    def follow(self) -> None:
        """Make a standby of the present primary, and wait until no commit is acknowledged without it."""
        assert self.standby is None
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        directory.chmod(0o755)
        self.primary.run("pg_basebackup", "-D", directory / "data", "-R", "--checkpoint=fast", "--no-sync")
        self.standby = PostgresServer.start(settings=self._settings, directory=directory)
        # It has the primary's settings in its files. Promoted it must not wait for a standby that is not there yet.
        _set_synchronous(self.standby.dsn(driver=""), "")
        _set_synchronous(self.superuser("postgres"), "*")
        self.is_followed()

    def is_followed(self) -> None:
        """Wait until the standby has everything and every commit waits for it."""
        if self.standby is None:
            return
        (written,) = self.ask("select pg_current_wal_flush_lsn()", database="postgres")[0]
        question = (
            "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
            f" and replay_lsn >= '{written}'"
        )
        _until(lambda: self.ask(question, database="postgres")[0][0] == 1, "the standby follows")

    def restart(self, how: Ending, down: float = 0.0) -> None:
        """End the primary as `how` says, and start it again after so many seconds."""
        self._end_primary(how)
        time.sleep(down)
        self.primary.restart()

    def _end_primary(self, how: Ending) -> None:
        if how == "fast":
            os.kill(self.primary.pid, signal.SIGINT)
            _until(self._is_gone, "the primary has ended")
        # Does nothing to one that has ended.
        self.primary.crash()

    def _is_gone(self) -> bool:
        try:
            return self.primary.pid <= 0
        except PostgresUnavailable:
            return True

    def fail_over(self, how: Ending) -> None:
        """End the primary for good, and promote the standby."""
        assert self.standby is not None, "nobody follows"
        # A commit that an earlier crash interrupted is visible without the standby having it until that has caught up.
        self.is_followed()
        old, new = self.primary, self.standby
        self._end_primary(how)
        self._gone.append(old)
        new_address = new.dsn("postgres", driver="")
        _ask(new_address, "select pg_promote()")
        _until(lambda: not _ask(new_address, "select pg_is_in_recovery()")[0][0], "the standby is promoted")
        self.primary, self.standby = new, None

    def stop(self) -> None:
        """End all servers and remove their files."""
        for server in (*self._gone, self.standby, self.primary):
            if server is not None:
                server.crash()
                server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


def _ask(address: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute(question.encode())
        return found.fetchall() if found.description else []


def _set_synchronous(address: str, names: str) -> None:
    _ask(address, f"alter system set synchronous_standby_names = '{names}'")
    _ask(address, "select pg_reload_conf()")


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still not so after {PATIENCE:g} s: {what}")
        time.sleep(0.02)
