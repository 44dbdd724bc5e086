"""Options that several commands have, each declared once, and times and lengths of time as people write them.

Such as `--yes`, `--limit`, `--rate`, which dead letters; `2026-11-17T10:00`, `2h`, `1h30m`, `7d`. A time without a zone
is UTC, as everything that is printed. A length where a time is wanted means: so long ago. Used by `commands`.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from faststream_outbox._internal.queue.dead_letters import Selection
from faststream_outbox._internal.text import parsed_moment

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_LENGTH = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_length(text: str) -> timedelta:
    """A length of time, such as 90s, 15m, 2h, 7d or 1h30m."""
    given = text.strip().lower()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", given, re.ASCII):
            return timedelta(seconds=float(given))
        if _LENGTH.fullmatch(given):
            return sum((timedelta(**{_UNITS[unit]: float(many)}) for many, unit in _PART.findall(given)), timedelta())
    except OverflowError:
        pass
    msg = f"{text!r} is no length of time. Write 90s, 15m, 2h, 7d or 1h30m."
    raise typer.BadParameter(msg)


def parse_moment(text: str) -> datetime:
    """A time, or a length of time ago."""
    found = parsed_moment(text.strip())
    try:
        if found is not None:
            return found.astimezone(UTC)
        return datetime.now(UTC) - parse_length(text)
    except (typer.BadParameter, OverflowError):
        msg = f"{text!r} is no time. Write 2026-11-17T10:00 (UTC), 2026-11-17T10:00+02:00, or 2h for two hours ago."
        raise typer.BadParameter(msg) from None


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
