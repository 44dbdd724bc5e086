"""The application of typer: the options before a command's name, and every command."""

import inspect
from importlib import import_module
from typing import Annotated, Any

import typer

from faststream_outbox._internal.cli.command import shared
from faststream_outbox._internal.cli.commands import (
    dashboard,
    dead,
    doctor,
    groups,
    inbox,
    messages,
    parked,
    relay,
    schema,
    status,
    tail,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Queues, topics and dead letters of an outbox, for operators.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        # The package's own module, which imports everything else if it is asked to.
        print(import_module("faststream_outbox").__version__)
        raise typer.Exit


def _remember(context: typer.Context, *, version: bool, **options: Any) -> None:
    """Queues, topics and dead letters of an outbox, for operators."""
    context.obj = shared(**options)


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]
_parameters = [
    inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
    inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, annotation=_Version, default=False),
    *inspect.signature(shared).parameters.values(),
]
_callback: Any = _remember
_callback.__signature__ = inspect.Signature(_parameters)
_callback.__annotations__ = {each.name: each.annotation for each in _parameters}
app.callback()(_callback)

for _add_to in (
    status.add_to,
    messages.add_to,
    groups.add_pausing_to,
    messages.add_timers_to,
    dead.add_to,
    groups.add_to,
    parked.add_to,
    relay.add_to,
    inbox.add_to,
    tail.add_to,
    doctor.add_to,
    schema.add_to,
    dashboard.add_to,
):
    _add_to(app)
