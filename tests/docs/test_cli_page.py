"""Every command of the page runs, in order, and prints what the page says; only times, ids and ages are other ones."""

import json
import os
import re
import shlex
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from faststream_outbox import Envelope
from faststream_outbox._internal.cli.app import app
from faststream_outbox._internal.cli.exits import Exit
from tests.cli.conftest import stage
from tests.cli.stage import Stage
from tests.docs.pages import ROOT, Part, parts, rows, text_of

__all__ = ["stage"]

PAGE = "docs/cli.md"
IS_WRITING = "OUTBOX_WRITE_PAGE" in os.environ
# What is another one each time.
_MOVING = [
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z|\.\d+\+00:00)", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\b(\d+[dhms] )?\d+[dhms]\b", "AGE"),
    (r"\b\d+:\d+\b", "PLACE"),
    (r"\b[\d.]+ seconds?\b", "AGE"),
]


@pytest.fixture
def shop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A little of everything."""
    stage.publish(*(Envelope(queue="orders", body=b'{"order": %d}' % number, key="customer-1") for number in (1, 2, 3)))
    stage.publish(Envelope(queue="mails", body=b"hello", headers={"content-type": "text/plain"}))
    stage.timer("remind-7")
    stage.bury(3)
    stage.bury(1, queue="mails", error="KeyError")
    stage.topic(parks=True)
    stage.run("groups", "seek", "audit", "latest", "--uri", "shop", "--create", "--yes")
    stage.sql("insert into inbox (consumer, source, message_id) values ('billing', 'orders', '1')")
    monkeypatch.setenv("SHOP_DATABASE_URL", stage.url.render_as_string(hide_password=False))
    monkeypatch.chdir(ROOT)
    return stage


def commands() -> Iterator[tuple[list[list[str]], Part | None]]:
    """The commands of each block, and the text that they print."""
    found = [part for part in parts(PAGE) if part.reason is None]
    for part, behind in zip(found, [*found[1:], None], strict=True):
        if part.language == "shell":
            lines = [line for line in part.code.splitlines() if line.startswith("faststream-outbox ")]
            printed = behind if behind is not None and behind.language == "text" else None
            yield [shlex.split(line.removeprefix("faststream-outbox "), comments=False) for line in lines], printed


def expected_exit(arguments: list[str]) -> tuple[list[str], int]:
    if "#" not in arguments:
        return arguments, 0
    place = arguments.index("#")
    said = re.search(r"exits with (\d+)", " ".join(arguments[place:]))
    return arguments[:place], int(said[1]) if said else 0


def steady(text: str) -> list[list[str]]:
    for pattern, name in _MOVING:
        text = re.sub(pattern, name, text)
    return [line.split() for line in text.strip().splitlines()]


@pytest.mark.slow
def test_commands_of_the_page_print_what_it_says(shop: Stage) -> None:
    differing: dict[int, str] = {}
    for block, printed in commands():
        out = ""
        for line in block:
            arguments, code = expected_exit(line)
            environment = {"OUTBOX_DSN": shop.dsn, "TERM": "dumb", "NO_COLOR": "1"}
            result = CliRunner().invoke(app, arguments, env=environment)
            # The server of the tests would lose everything in a crash, which is critical to a doctor.
            assert result.exit_code == (1 if arguments == ["doctor"] else code), (arguments, result.output)
            out += result.stdout
        if printed is not None and (IS_WRITING or steady(out) != steady(printed.code)):
            differing[printed.line] = out
    if IS_WRITING:
        write(differing)
    else:
        assert differing == {}, "OUTBOX_WRITE_PAGE=1 writes what is printed into the page"


def write(differing: dict[int, str], page: str = PAGE) -> None:
    """Put what was printed into the page."""
    lines = text_of(page).splitlines()
    for line, out in sorted(differing.items(), reverse=True):
        end = lines.index("```", line - 1)
        lines[line - 1 : end] = out.rstrip().splitlines()
    (ROOT / page).write_text("\n".join(lines) + "\n", encoding="utf-8")


def names(command: object, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the application."""
    within = getattr(command, "commands", None)
    if not within:
        yield " ".join(before)
    for name, each in (within or {}).items():
        yield from names(each, (*before, name))


def test_every_command_is_on_the_page() -> None:
    import typer.main

    text = text_of(PAGE)
    missing = [name for name in names(typer.main.get_command(app)) if f"faststream-outbox {name}" not in text]
    assert missing == []


def test_every_exit_code_is_on_the_page() -> None:
    assert [int(row[0]) for row in rows(PAGE, "## Exit codes")] == [int(exit) for exit in Exit]


def test_the_shape_of_json_is_on_the_page(shop: Stage) -> None:
    found = json.loads(shop.run("queues", "--json", code=None).out)
    assert [row[0].strip("`") for row in rows(PAGE, "## What it prints")] == list(found)
