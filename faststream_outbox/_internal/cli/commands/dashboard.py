"""`dashboard`: the web pages, served from here."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.here import Here

VARIABLE = "OUTBOX_DASHBOARD_AUTH"
_INSTALL = "The dashboard needs {missing}: pip install '.[dashboard]' uvicorn brings it."


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(dashboard)


async def dashboard(
    here: Here,
    host: Annotated[str, typer.Option(help=f"The address to bind; others than this machine need {VARIABLE}.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to bind.")] = 8710,
    read_only: Annotated[bool, typer.Option("--read-only", help="Leave all actions out.")] = False,
) -> Callable[[], None]:
    """Serve the dashboard until Ctrl-C; on this machine its address is printed, and works once."""
    made = _imported()
    _ = here.overview
    page = made.make_dashboard(here.engine, **here.tables.keywords(), auth=_auth(made), read_only=read_only)
    # Served after this event loop has ended: the server has one of its own, and the engine connects anew there.
    return lambda: made.serve(page, host, port)


def _imported() -> Any:
    """The dashboard's module, where what it needs is installed; named here and nowhere else, as it may be missing."""
    try:
        import_module("uvicorn")
        return import_module("faststream_outbox.dashboard")
    except ModuleNotFoundError as error:
        raise Refusal(_INSTALL.format(missing=error.name)) from None


def _auth(made: Any) -> Any:
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    name, colon, password = given.partition(":")
    if not (name and colon and password):
        msg = f"{VARIABLE} is written name:password."
        raise Refusal(msg)
    return made.BasicAuth({name: password})
