"""The night of docs/incident.md happens: its worker, its alert, its commands in their order, and what they print."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

import psycopg
import pytest
from sqlalchemy import MetaData, create_engine, text
from typer.testing import CliRunner

from faststream_outbox._internal.cli.app import app
from faststream_outbox.schema import make_dlq_table, make_outbox_table, outbox_autovacuum_ddl
from faststream_outbox.testing.postgres import PostgresServer
from tests.docs import alerting
from tests.docs.pages import ROOT, Part, parts
from tests.docs.test_cli_page import IS_WRITING, expected_exit, steady, write
from tests.waiting import PATIENCE_SECONDS, eventually_sync

PAGE = "docs/incident.md"
ALERT = "OutboxMessagesOld"
ORDERS = 150
WRONG = 7
"""The order with a comma in its total."""
WAITED = "22 minutes"


class Night:
    """A database, and one worker at a time."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.dsn = server.dsn(driver="")
        self._engine_url = server.dsn()
        self._folder = folder
        self._worker: subprocess.Popen[bytes] | None = None
        self.ids: dict[str, str] = {}
        """The ids of dead letters that the page names, and those of this night."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        metadata = MetaData()
        make_outbox_table(metadata)
        make_dlq_table(metadata)
        builder = create_engine(server.dsn(driver="psycopg"))
        metadata.create_all(builder)
        with builder.begin() as connection:
            connection.execute(text(outbox_autovacuum_ddl()))
        builder.dispose()

    def publish(self) -> None:
        """What the shop published before the release, and what time it is by now."""
        insert = "insert into outbox (queue, key, payload, headers, created_at, next_attempt_at) "
        headers = json.dumps({"content-type": "application/json"})
        at = f"now() - interval '{WAITED}'"
        with psycopg.connect(self.dsn) as connection:
            for queue, count in (("orders", ORDERS), ("invoices", 12)):
                for number in range(1, count + 1):
                    total = "12,50" if (queue, number) == ("orders", WRONG) else f"{number}.00"
                    body = json.dumps({"order": number, "total": total}).encode()
                    key = "customer-7" if queue == "invoices" else None
                    values = f"values (%s, %s, %s, %s, {at}, {at})"
                    connection.execute(insert + values, (queue, key, body, headers))

    def deploy(self, source: str) -> None:
        """Stop the worker, and start this one."""
        self.stop()
        code = source.replace("postgresql+asyncpg://localhost/app", self._engine_url)
        (self._folder / "night.py").write_text(code.replace("sample_every=15", "sample_every=0.5"))
        command = [sys.executable, "-m", "faststream", "run", "night:app", "--host", "127.0.0.1"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(self._folder), str(ROOT)])}
        with (self._folder / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [*command, "--port", str(self._port)], cwd=self._folder, env=environment, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """Ask the worker to end, and wait until it has."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)

    def shown(self) -> str:
        """What the worker shows on /metrics; nothing while it does not answer."""
        assert self._worker is not None
        assert self._worker.poll() is None, (self._folder / "worker.log").read_text()[-3000:]
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                return str(answer.read(), "utf-8")
        except (URLError, OSError):
            return ""

    def row(self, question: str) -> tuple[object, ...] | None:
        """One row of the database."""
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(question.encode()).fetchone()

    def alert(self) -> dict[str, str] | None:
        """The summaries of the alert, if it was sampled; nothing where it does not fire."""
        shown = self.shown()
        if "faststream_outbox_sample_seconds" not in shown:
            return None
        return alerting.check(ALERT, shown, self._folder)

    def run(self, block: Part) -> str:
        """What the commands of a block print, one after the other."""
        out = ""
        for line in block.code.splitlines():
            arguments, code = expected_exit(shlex.split(line.removeprefix("faststream-outbox ")))
            arguments = [self.ids.get(each, each) for each in arguments]
            environment = {"OUTBOX_DSN": self.dsn, "TERM": "dumb", "NO_COLOR": "1"}
            result = CliRunner().invoke(app, arguments, env=environment)
            assert result.exit_code == code, (arguments, result.output)
            out += result.stdout
        return out


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    # With the settings of a server in production: the doctor has nothing to say of it.
    with PostgresServer.start(version=int(os.environ.get("OUTBOX_TEST_PG", "18"))) as server:
        made = Night(server, tmp_path)
        try:
            yield made
        finally:
            made.stop()


def same(printed: str, page: str) -> bool:
    return steady(unnumbered(printed)) == steady(unnumbered(page))


MOVING = (
    # Grows with the doctor.
    (r"\b\d+ checks\b", "CHECKS"),
    # In which order four executors come to their ends is another one each night.
    (r"(?m)^ *\d+(?=  \w+ +\d{4}-)", "ID"),
    (r"Dead letter \d+ is", "Dead letter ID is"),
    (r"have to go first: \d+", "have to go first: ID"),
    (r"ids=\[\d+\]", "ids=[ID]"),
    (r"\b\d+ minutes?\b", "AGE"),
)


def unnumbered(said: str) -> str:
    """Without the numbers that are other ones each time."""
    for pattern, name in MOVING:
        said = re.sub(pattern, name, said)
    return said


def listed(said: str) -> list[str]:
    """The ids of a list of dead letters."""
    return re.findall(r"(?m)^ *(\d+)(?=  \w+ +\d{4}-)", said)


@pytest.mark.slow
def test_night_goes_as_it_is_told(night: Night) -> None:
    night.publish()
    source = ""
    differing: dict[int, str] = {}
    told = [part for part in parts(PAGE) if part.reason is None]
    for part, behind in zip(told, [*told[1:], None], strict=True):
        if part.language == "python":
            source = part.code
            night.deploy(source)
            eventually_sync(lambda: night.row("select 1 from outbox_dlq having count(*) = 151") is not None, timeout=60)
        elif part.language == "shell" and behind is not None:
            printed: list[str] = []

            def is_told(block: Part = part, page: str = behind.code, printed: list[str] = printed) -> bool:
                printed.append(night.run(block))
                return same(printed[-1], page)

            # What only asks may be asked again: the workers may need a moment.
            is_asked_again = "--yes" not in part.code and not IS_WRITING
            deadline = monotonic() + (PATIENCE_SECONDS if is_asked_again else 0)
            while not is_told() and monotonic() < deadline:
                sleep(0.2)
            night.ids.update(zip(listed(behind.code), listed(printed[-1]), strict=False))
            if not same(printed[-1], behind.code):
                differing[behind.line] = printed[-1]
        elif part.code.startswith(ALERT):
            expect_alert(night, part.code)
        elif part.code.startswith("-"):
            source = changed(source, part.code)
            night.deploy(source)
    if IS_WRITING:
        write(differing, PAGE)
    else:
        assert differing == {}, "OUTBOX_WRITE_PAGE=1 writes what is printed into the page"
    assert night.row("select count(*) from outbox") == (0,)


def expect_alert(night: Night, said: str) -> None:
    """The alert fires with the summary of the page, or ends."""
    if said.split() == [ALERT, "resolved"]:
        eventually_sync(lambda: night.alert() == {}, timeout=60)
        return
    pattern = re.compile(re.sub(r"\d+m \d+s", r"\\d+m \\d+s", " ".join(said.split()[2:])))
    severity = alerting.rule(ALERT)["labels"]["severity"]
    assert said.split()[1] == severity

    def fires() -> bool:
        summaries = night.alert() or {}
        return [bool(pattern.fullmatch(each)) for each in summaries.values()] == [True]

    eventually_sync(fires, timeout=60)


def changed(source: str, difference: str) -> str:
    """A program after a change that a page shows as lines with - and +."""
    lines = difference.splitlines()
    before = "\n".join(line[2:] for line in lines if line.startswith("-"))
    after = "\n".join(line[2:] for line in lines if line.startswith("+"))
    assert source.count(before.strip()) == 1
    return source.replace(before.strip(), after.strip())
