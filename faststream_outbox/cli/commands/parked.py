"""`parked list`, `parked retry` and `parked skip`: messages of topics that failed for good for one group."""

from collections.abc import Sequence
from typing import Annotated

import typer

from faststream_outbox.cli.asking import agreed
from faststream_outbox.cli.blocks import Said
from faststream_outbox.cli.command import command
from faststream_outbox.cli.commands.groups import uri_of
from faststream_outbox.cli.exits import Answer, Exit, Refusal
from faststream_outbox.cli.here import Here
from faststream_outbox.cli.options import Group, Limit, Uri, Yes
from faststream_outbox.cli.shown import counted
from faststream_outbox.cli.views.topics import deferred_grid
from faststream_outbox.log.deferral.parked import DeferredMessage

MOST_SHOWN = 1000
"""Messages that are looked at before a question; there may be more."""
Positions = Annotated[
    list[int] | None, typer.Argument(metavar="[POSITION]...", min=0, max=2**63 - 1, help="Which, by position.")
]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    parked = typer.Typer(no_args_is_help=True, help="Messages of topics that failed for good for one group.")
    command(parked, "list")(list_parked)
    command(parked)(retry)
    command(parked)(skip)
    app.add_typer(parked, name="parked")


async def list_parked(
    here: Here,
    group: Annotated[str | None, typer.Argument(help="Only of this group.")] = None,
    uri: Uri = None,
    state: Annotated[str, typer.Option(help="parked, retry, deferred, or all of them.")] = "parked",
    key: Annotated[str | None, typer.Option(help="Only messages of this URI.")] = None,
    error: Annotated[str | None, typer.Option(help="Only with this class of exception.")] = None,
    limit: Limit = 20,
) -> Answer:
    """What waits in groups: parked, or also what is tried again and what waits behind it."""
    found = await here.outbox.parked.list(
        group, uri, state=None if state == "all" else state, key=key, error_type=error, limit=limit
    )
    return Answer(found, [deferred_grid(found)])


async def retry(
    here: Here,
    group: Group,
    positions: Positions = None,
    uri: Uri = None,
    everything: Annotated[bool, typer.Option("--all", help="All that the group has parked.")] = False,
    yes: Yes = False,
) -> Answer:
    """Let parked messages run again, as if for the first time."""
    if bool(positions) == everything:
        msg = "Say which: positions, as `parked list` has them, or --all."
        raise Refusal(msg)
    read = await uri_of(here, group, uri)
    waiting = await here.outbox.parked.list(group, read, limit=MOST_SHOWN)
    chosen = [each for each in waiting if everything or each.position in (positions or ())]
    _check_any(chosen, group)
    question = f"Let {counted(len(chosen), 'message')}{' or more' * (len(waiting) >= MOST_SHOWN)} run again?"
    if not _agreed(here, chosen, "Would run again", question, yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    done = await here.outbox.parked.retry(group, read, positions=None if everything else positions)
    return _answer(group, read, done, "will run again")


async def skip(here: Here, group: Group, positions: Positions = None, uri: Uri = None, yes: Yes = False) -> Answer:
    """End messages that wait, parked or not, without handling them."""
    if not positions:
        msg = "Say which: positions, as `parked list --state all` has them."
        raise Refusal(msg)
    read = await uri_of(here, group, uri)
    waiting = await here.outbox.parked.list(group, read, state=None, limit=MOST_SHOWN)
    chosen = [each for each in waiting if each.position in positions]
    if len(waiting) < MOST_SHOWN:
        _check_any(chosen, group)
    question = f"End {counted(len(positions), 'message')} without handling them?"
    if not _agreed(here, chosen, "Would end unhandled", question, yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    done = await here.outbox.parked.skip(group, *positions, uri=read)
    return _answer(group, read, done, "ended unhandled")


def _check_any(chosen: list[DeferredMessage], group: str) -> None:
    if not chosen:
        msg = f"Nothing of group {group!r} matches: `parked list --state all` has what waits."
        raise Refusal(msg, Exit.NOTHING)


def _agreed(here: Here, chosen: list[DeferredMessage], title: str, question: str, *, yes: bool) -> bool:
    if not yes:
        here.printer.plan([deferred_grid(chosen, title)])
    return agreed(question, yes=yes)


def _answer(group: str, uri: str, done: Sequence[int], what: str) -> Answer:
    data = {"group": group, "uri": uri, "positions": done}
    said = f"{counted(len(done), 'message')} of group {group!r} {what}."
    return Answer(data, [Said(said)], Exit.FINE if done else Exit.NOTHING)
