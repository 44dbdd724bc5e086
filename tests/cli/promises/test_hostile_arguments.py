"""Every command with arguments of every kind ends with a known exit code; what is wrong is a line, and changes nothing.

The commands are those that the application has: one more is tried by itself.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faststream_outbox._internal.cli.app import app
from faststream_outbox._internal.cli.command import shared as shared_options
from faststream_outbox._internal.cli.exits import Exit
from tests.cases import case
from tests.cli.stage import Stage

pytestmark = pytest.mark.slow

SQL = "orders'; drop table outbox; --"
TEXTS = [
    "", " ", "orders", "billing", "shop", SQL, '"; delete from outbox_dlq; --', "%s %(x)s :x {y} $1", "\\", "a\x00b",
    "\ud800", "\udcff", "a\nb", "\x1b]0;x\x07", "\u202e", "[bold]x[/bold]", "x" * 100_000, "漢" * 400, "-1", "--", "-n",
    "null", "$paused", "00000000-0000-0000-0000-000000000000", "a/b", "/", "../../etc/passwd", "{}", '{"a": NaN}', "[",
    "[" * 5000,
]  # fmt: skip
NUMBERS = [
    "0", "1", "-1", "007", "+5", " 3 ", "1_000", "٣", "1e3", "1.5", "0x10", "nan", "inf", "-inf", "1e400", "9" * 5000,
    "-" + "9" * 30, *(str(sign * 2**power + one) for sign in (1, -1) for power in (15, 31, 63) for one in (-1, 0, 1)),
]  # fmt: skip
TIMES = [
    "2h", "0s", "1.5d", "9" * 400 + "w", "-2h", "10000-01-01", "0000-00-00", "0001-01-01T00:00+23:59",
    "9999-12-31T23:59:59-23:59", "2026-13-45", "infinity", "-infinity", "0044-03-15 BC", "now", "2026-11-17T10:00Z",
    "99999999999999999999:1", "1:99999999999999999999", "1:1", "earliest", "latest", "999999999999999999:1",
]  # fmt: skip
STRANGE = [*TEXTS, *NUMBERS, *TIMES]
KNOWN = ["orders", "billing", "shop", "remind-1", "1", "2", "3", "2h", "earliest", "all", "customer-1", "ValueError"]
VALUES = (
    st.sampled_from(KNOWN) | st.sampled_from(STRANGE) | st.text(max_size=20) | st.integers().map(str)
    | st.datetimes().map(str)
)  # fmt: skip
ELSEWHERE = {"--dsn", "--app"}
"""Where the database is: hostile ones are below."""
NEVER_ENDS = {"tail": ["--count", "1"]}
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LONGEST = 2000
"""Characters of a line that says what is wrong: what was given is cut."""


class Command(NamedTuple):
    """A command, and what may be given to it."""

    path: tuple[str, ...]
    arguments: Sequence[Any]
    options: Sequence[Any]
    shared: Sequence[Any]
    """Options that every command has."""


def commands(at: Any = None, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """All that the application has."""
    at = at or typer.main.get_command(app)
    for name, inner in getattr(at, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if not hasattr(at, "commands"):
        known = [each for each in at.params if each.name != "help" and not ELSEWHERE & {*each.opts}]
        arguments = [each for each in known if each.param_type_name == "argument"]
        shared = [each for each in known if each.name in inspect.signature(shared_options).parameters]
        yield Command(path, arguments, [each for each in known if each not in [*arguments, *shared]], shared)


ALL = [*commands()]


@pytest.fixture(autouse=True)
def unserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard is made, and not served."""
    monkeypatch.setattr("faststream_outbox._internal.dashboard.dashboard", lambda *_: None)
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)


class Filled:
    """A database with something of everything, which is the same again before each command."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        stage.bury(3)
        stage.timer()
        stage.topic(parks=True)
        self._tables = [table.name for table in stage.tables]
        for name in self._tables:
            stage.sql(f"create table kept_{name} as table {name}")
        self.before = self.content()

    def content(self) -> dict[str, str]:
        """What every table holds, but who looks."""
        asked = " union all ".join(
            f"select '{name}', md5(coalesce(string_agg(t::text, '' order by t::text), '')) from {name} t"
            for name in self._tables
            if not name.endswith("_members")
        )
        return dict(map(tuple, self._stage.sql(asked)))

    def run(self, *arguments: str) -> None:
        """Run a command; whatever it does, it ends well or changes nothing, and says why in a line."""
        printed = self._stage.run(*arguments, code=None)
        known = {int(exit) for exit in Exit} - {Exit.INTERRUPTED, Exit.UNREACHABLE}
        assert printed.code in known, printed
        assert UNSEEN.search(printed.out) is None, printed
        assert "Traceback (" not in printed.err
        after = self.content()
        if printed.code == Exit.FINE:
            if after != self.before:
                self.refill()
            return
        assert after == self.before, (arguments, printed)
        assert printed.said.strip(), "it says nothing"
        if printed.err.startswith("Error:"):
            assert len(printed.err.strip().splitlines()) == 1, printed.err
            assert len(printed.err) < LONGEST, len(printed.err)
            assert UNSEEN.search(printed.err) is None, printed

    def refill(self) -> None:
        """Put back what was."""
        self._stage.sql("truncate " + ", ".join(self._tables))
        for name in self._tables:
            self._stage.sql(f"insert into {name} overriding system value table kept_{name}")
        assert self.content() == self.before

    def drop(self) -> None:
        """Remove the copies."""
        self._stage.sql("drop table " + ", ".join(f"kept_{name}" for name in self._tables))


@pytest.fixture
def filled(stage: Stage) -> Iterator[Filled]:
    made = Filled(stage)
    yield made
    made.drop()


@st.composite
def lines(draw: st.DrawFn, command: Command) -> list[str]:
    """A command line: the options that it has, each with any value."""
    line = [*command.path]
    options = draw(st.lists(st.sampled_from(command.options), max_size=4)) if command.options else []
    # Seldom: with a table that is not there, no command gets far.
    if draw(st.integers(0, 3)) == 0:
        options += draw(st.lists(st.sampled_from(command.shared), max_size=2))
    for option in options:
        line.append(draw(st.sampled_from(option.opts)))
        if not option.is_flag:
            line.append(draw(VALUES))
    line += NEVER_ENDS.get(" ".join(command.path), [])
    if draw(st.booleans()):
        line.append("--")
    count = len(command.arguments) if draw(st.integers(0, 9)) else draw(st.integers(0, 4))
    return [*line, *(draw(VALUES) for _ in range(count))]


WRONG = {
    "an id that no table has": ["dead", "replay", "--id", "9" * 30],
    "a key that is no text": ["dead", "list", "--key", "\udcff"],
    "one table twice": ["schema", "print", "--table", "jobs", "--dlq-table", "jobs"],
    "a table of a log": ["schema", "print", "--table", "jobs_head", "--log", "jobs"],
    "a name without end": ["queues", "--table", "x" * 100_000],
}


def test_what_is_wrong_is_said_in_a_line(filled: Filled, stage: Stage) -> None:
    for what, arguments in WRONG.items():
        with case(what):
            filled.run(*arguments)
            assert stage.run(*arguments, code=None).err.startswith("Error: ")
            assert stage.run(*arguments, "--json", code=None).document["error"]


ADDRESSES = [
    "", " ", "x", "postgresql://", "postgresql://[::1", "postgresql://127.0.0.1:99999/x", "mysql://127.0.0.1/x", "://",
    "postgresql://a\x00b/x", "postgresql://\ud800/x", "postgresql:///x?host=%00", "postgresql://127.0.0.1/x?sslmode=never",
    "'; drop table outbox;", "postgresql+nothing://127.0.0.1:1/x", "x" * 100_000, f"postgresql://{'x' * 100}/x",
    "postgresql://a..b/x", "postgresql:///x?host=/nowhere", "postgresql://127.0.0.1:-1/x", "postgresql://127.0.0.1/x?port=a",
]  # fmt: skip
APPS = [
    "", ":", "x", "x:", ":y", "no.such.module:x", "os:system", "os:", "a\x00b:c", "\ud800:x", "..:x", "json:loads:x",
    "os:sep.x", "os:path.join.x", f"{'x' * 100_000}:x",
]  # fmt: skip


def test_a_database_that_cannot_be_is_said_in_a_line(stage: Stage) -> None:
    for option, values in (("--dsn", ADDRESSES), ("--app", APPS)):
        for value in values:
            with case((option, value[:50])):
                printed = stage.run("queues", option, value, code=None, dsn="")
                assert printed.code in (Exit.USAGE, Exit.UNREACHABLE), printed
                assert len(printed.err.strip().splitlines()) == 1, printed
                assert len(printed.err) < LONGEST


LINES = st.sampled_from(ALL).flatmap(lines)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES)
def test_every_command_ends_in_a_known_way(line: list[str], filled: Filled) -> None:
    filled.run(*line)


@pytest.mark.soak
@settings(max_examples=4000, derandomize=False, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES)
def test_every_command_ends_in_a_known_way_at_length(line: list[str], filled: Filled) -> None:
    filled.run(*line)


def test_a_stranger_s_names_are_harmless_wherever_they_are_shown(stage: Stage) -> None:
    hostile = "\x1b]0;x\x07[bold]\u202e\n"
    stage.bury(1, queue=hostile, error=hostile)
    stage.topic(group=hostile, keys=[hostile], parks=True)
    for arguments in (["dead", "list"], ["dead", "groups"], ["dead", "show", "1"], ["parked", "list"]):
        for json in ([], ["--json"]):
            assert UNSEEN.search(stage.run(*arguments, *json).said) is None
