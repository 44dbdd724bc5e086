"""Commands that a person runs, who logs in with the rights of a role."""

from typing import Any

from sqlalchemy import URL
from typer.testing import CliRunner

from faststream_outbox._internal.cli.app import app
from tests.publish.ways import plain
from tests.rights.stage import SCHEMA


def run(address: URL, command: str) -> Any:
    """A command's result; the address is given as a person gives it."""
    environment = {"OUTBOX_DSN": plain(address), "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner().invoke(app, [*command.split(), "--schema", SCHEMA], env=environment, catch_exceptions=False)
