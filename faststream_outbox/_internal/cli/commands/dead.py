"""`dead`: find, group, show, replay, edit and purge dead letters."""

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands import dead_change, dead_find
from faststream_outbox._internal.cli.options import selecting


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    dead = typer.Typer(no_args_is_help=True, help="Dead letters: find, group, show, replay, edit, purge.")
    command(dead, "list", selection=selecting)(dead_find.list_letters)
    command(dead)(dead_find.groups)
    command(dead)(dead_find.show)
    command(dead, selection=selecting)(dead_change.replay)
    command(dead)(dead_change.edit)
    command(dead, selection=selecting)(dead_change.purge)
    app.add_typer(dead, name="dead")
