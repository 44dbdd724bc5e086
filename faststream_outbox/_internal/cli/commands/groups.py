"""`groups list`, `groups lag`, `groups seek`, `groups delete`: readers of topics, their places and what they wait for.

`pause` and `resume` are here too, which take a queue or a group, and hold in every process. Whatever moves or deletes a
group first shows what would happen, then asks. Added to the application by `app`; `parked` shows what waits as this
does.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from faststream_outbox._internal.cli.asking import agreed
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands.status import group_grid, process_named
from faststream_outbox._internal.cli.exits import Answer, Block, Exit, Facts, Grid, Marked, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import DryRun, Group, Uri, Yes, parse_moment
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.log.admin.positions import Place, Positions
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.overview.topics import BlockedKey, SlotStatus
from faststream_outbox._internal.text import age, count, counted, glance, parsed_cursor


def place_text(cursor: Cursor) -> str:
    """A place, as `groups seek` takes it."""
    return f"{cursor.tick}:{cursor.position}"


def lag_blocks(slots: Sequence[SlotStatus], blocked: Sequence[BlockedKey]) -> list[Block]:
    """Spans, and below them the keys that wait."""
    rows = [
        (
            f"{each.slots[0]}-{each.slots[1]}",
            f"{each.tick}:{each.position}",
            count(each.messages, is_estimate=each.is_estimate),
            age(each.seconds) if each.messages else "-",
            process_named(each.owner, each.owner_id),
            each.leased_until,
        )
        for each in slots
    ]
    columns = ("slots", "stands at", "unread", "behind", "read by", "leased until")
    blocks: list[Block] = [Grid(columns, rows, "Slots", "The group has no place in the log yet.")]
    if blocked:
        waiting = [
            (
                each.key,
                Marked(each.state, "bad" if each.state == "parked" else "warning"),
                str(each.position),
                count(each.waiting, is_estimate=each.is_estimate),
                each.since,
                each.error,
            )
            for each in blocked
        ]
        blocks.append(Grid(("key", "state", "position", "waiting", "since", "error"), waiting, "Blocked keys"))
    return blocks


def deferred_grid(messages: Sequence[DeferredMessage], title: str = "") -> Grid:
    """A row for each message that waits in a group."""
    columns = ("group", "uri", "position", "key", "state", "attempts", "due", "error", "message", "since")
    rows = [
        (
            each.group,
            each.uri,
            str(each.position),
            each.key,
            each.state,
            each.attempts,
            each.due,
            each.error_type,
            None if each.error_message is None else glance(each.error_message.encode(errors="replace"), 50),
            each.updated_at,
        )
        for each in messages
    ]
    return Grid(columns, rows, title, "Nothing waits.")


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
    found = await here.seek(wanted, group, read, create=create)
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
    if (cursor := parsed_cursor(given)) is not None:
        return Cursor(*cursor)
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


Queue = Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="The queue's name.")]
OfGroup = Annotated[str | None, typer.Option("--group", "-g", help="A group of topics instead of a queue.")]


def add_pausing_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(pause)
    command(app)(resume)


async def pause(
    here: Here,
    queue: Queue = None,
    group: OfGroup = None,
    uri: Uri = None,
    create: Annotated[bool, typer.Option("--create", help="Also a queue that nobody has heard of yet.")] = False,
) -> Answer:
    """Claim, or read, nothing more of it, in any process, until it is resumed; what runs is finished."""
    what = _one_of(queue, group)
    if group is None:
        is_changed = await here.pause(what, create=create)
    else:
        is_changed = await here.outbox.groups.pause(what, await uri_of(here, what, uri))
    return _answer(queue, group, is_changed=is_changed, done="is paused", before="was paused already")


async def resume(here: Here, queue: Queue = None, group: OfGroup = None, uri: Uri = None) -> Answer:
    """Let it go on where it stands."""
    what = _one_of(queue, group)
    if group is None:
        is_changed = await here.resume(what)
    else:
        is_changed = await here.outbox.groups.resume(what, await uri_of(here, what, uri))
    return _answer(queue, group, is_changed=is_changed, done="goes on", before="was not paused")


def _one_of(queue: str | None, group: str | None) -> str:
    if (queue is None) == (group is None):
        msg = "Say what: a queue's name, or --group and the name of a group."
        raise Refusal(msg)
    return queue if queue is not None else str(group)


def _answer(queue: str | None, group: str | None, *, is_changed: bool, done: str, before: str) -> Answer:
    name = f"Queue {queue!r}" if group is None else f"Group {group!r}"
    data = {"queue": queue, "group": group, "is_changed": is_changed}
    return Answer(data, [Said(f"{name} {done if is_changed else before}.")])
