"""`groups list`, `groups lag`, `groups seek` and `groups delete`: readers of topics and their places."""

import re
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from faststream_outbox._internal.cli.asking import agreed
from faststream_outbox._internal.cli.blocks import Facts, Said
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit, Refusal
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.moments import parse_moment
from faststream_outbox._internal.cli.options import DryRun, Group, Uri, Yes
from faststream_outbox._internal.cli.shown import counted
from faststream_outbox._internal.cli.views.queues import group_grid
from faststream_outbox._internal.cli.views.topics import lag_blocks, place_text
from faststream_outbox._internal.log.admin.positions import Place, Positions
from faststream_outbox._internal.log.sharing.spans import Cursor

_CURSOR = re.compile(r"(\d{1,18}):(\d{1,18})", re.ASCII)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    groups = typer.Typer(no_args_is_help=True, help="Groups that read topics: list, lag, seek, delete.")
    command(groups, "list")(list_groups)
    command(groups)(lag)
    command(groups)(seek)
    command(groups)(delete)
    app.add_typer(groups, name="groups")


async def list_groups(
    here: Here, group: Annotated[str | None, typer.Argument(help="Only groups of this name.")] = None
) -> Answer:
    """Groups: what they have not read, who reads, what is deferred and parked."""
    _ = here.log_tables
    found = await here.overview.groups(group)
    return Answer(found, [group_grid(found)])


async def lag(here: Here, group: Group, uri: Uri = None) -> Answer:
    """Where each span of slots of a group stands, who reads it, and which keys are blocked."""
    read = await uri_of(here, group, uri)
    slots = await here.overview.slots(group, read)
    blocked = [each for each in await here.overview.blocked_keys(group) if each.uri == read]
    return Answer({"slots": slots, "blocked_keys": blocked}, lag_blocks(slots, blocked))


async def seek(
    here: Here,
    group: Group,
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE", help="earliest, latest, a time, 2h for two hours ago, TICK:POSITION, or an event_id."
        ),
    ],
    uri: Uri = None,
    create: Annotated[bool, typer.Option("--create", help="Make the group, if nobody has heard of it.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """Put a group elsewhere in the log; what lies behind that place is read, again or for the first time."""
    wanted = parsed_place(place)
    read = (uri or "") if create else await uri_of(here, group, uri)
    async with here.engine.connect() as connection:
        before = await Positions.caller_connection(here.log_tables, connection)
        found = await before.find(wanted)
        stands = Cursor(0, 0) if create else await here.outbox.get_cursor(connection, group, read)
    plan = {"group": group, "uri": read, "from": stands, "to": found, "is_done": False}
    facts = Facts(
        [("group", group), ("uri", read), ("stands at", place_text(stands)), ("would go to", place_text(found))]
    )
    if dry_run:
        return Answer(plan, [facts])
    if not yes:
        here.printer.plan([facts])
    direction = "back: messages will be handled again" if found < stands else "on: messages in between are not handled"
    if not agreed(f"Put group {group!r} {direction}. Go on?", yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    async with here.engine.begin() as connection:
        found = await here.outbox.seek(connection, wanted, group, read, create=create)
    return Answer({**plan, "to": found, "is_done": True}, [Said(f"Group {group!r} stands at {place_text(found)} now.")])


async def delete(
    here: Here,
    group: Group,
    uri: Uri = None,
    force: Annotated[bool, typer.Option("--force", help="Also while somebody reads it.")] = False,
    yes: Yes = False,
) -> Answer:
    """Forget a group: its place, its members, and what it has deferred."""
    read = await uri_of(here, group, uri)
    if not yes:
        here.printer.plan([group_grid(await here.outbox.groups.list(group, read), "Would be forgotten")])
    if not agreed(f"Delete group {group!r}?", yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    ended = await here.outbox.groups.delete(group, read, force=force)
    said = f"Group {group!r} is forgotten, and {counted(ended, 'message')} that it had deferred."
    return Answer({"group": group, "uri": read, "deferred": ended}, [Said(said)])


async def uri_of(here: Here, group: str, uri: str | None) -> str:
    """What a group reads, where that need not be said; raises `UnknownName` if nobody has heard of it."""
    if uri is not None:
        return uri
    uris = sorted({each.uri for each in await here.outbox.groups.list(group)})
    if len(uris) > 1:
        known = " or ".join(f"--uri {each!r}" for each in uris[:10])
        msg = f"There are several groups {group!r}, by what they read. Say which: {known}."
        raise Refusal(msg)
    return uris[0] if uris else ""


def parsed_place(text: str) -> Place:
    """A place in the log, as people write it."""
    given = text.strip()
    if given in ("earliest", "latest"):
        return given
    if (cursor := _CURSOR.fullmatch(given)) is not None:
        return Cursor(int(cursor[1]), int(cursor[2]))
    try:
        return UUID(given)
    except ValueError:
        pass
    try:
        found: datetime = parse_moment(given)
    except typer.BadParameter:
        msg = f"{text!r} is no place: earliest, latest, 2026-11-17T10:00, 2h, TICK:POSITION, or an event_id."
        raise Refusal(msg) from None
    return found
