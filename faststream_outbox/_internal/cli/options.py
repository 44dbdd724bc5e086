"""Options that several commands have, each declared once: `--yes`, `--limit`, `--rate`, which dead letters.

Used by `commands`.
"""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from faststream_outbox._internal.cli.moments import parse_length, parse_moment
from faststream_outbox._internal.queue.admin.dead_letters import Selection

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Most rows.")]
Rate = Annotated[float | None, typer.Option("--rate", min=0.001, help="At most so many a second.")]
Full = Annotated[bool, typer.Option("--full", help="All of a long body.")]
Uri = Annotated[str | None, typer.Option("--uri", help="What the group reads, where it reads more than one URI.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
Length = Annotated[timedelta, typer.Option(parser=parse_length, metavar="TIME")]


def selecting(
    *,
    ids: Annotated[list[int] | None, typer.Option("--id", help="Of this id; may be repeated.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Of this queue.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Of this key.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why they died: rejected, retry_terminal, …")] = None,
    error: Annotated[str | None, typer.Option("--error", help="The class of the exception.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", parser=parse_moment, metavar="TIME", help="Died then or later; 2h is two hours ago."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--until", parser=parse_moment, metavar="TIME", help="Died before.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, where nothing else is said.")] = False,
) -> Selection:
    """Which dead letters."""
    return Selection(
        ids=ids or None,
        queue=queue,
        key=key,
        reason=reason,
        error_type=error,
        since=since,
        until=until,
        everything=everything,
    )
