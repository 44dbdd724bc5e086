"""`parked list`, `parked retry` and `parked skip`: messages of topics that failed for good for one group.

`retry` and `skip` first show what would happen, then ask, as replays of dead letters do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from faststream_outbox._internal.cli.asking import agreed
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands.groups import deferred_grid, uri_of
from faststream_outbox._internal.cli.exits import Answer, Block, Exit, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import DryRun, Group, Limit, Uri, Yes
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.text import counted

AT_ONCE = 1000
"""Messages that are asked for at once."""
MOST_SHOWN = 100
"""Messages that are shown before a question, and counted if there are more."""
AGAIN, UNHANDLED = "Would run again", "Would end unhandled"
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
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """Let parked messages run again, as if for the first time."""
    if bool(positions) == everything:
        msg = "Say which: positions, as `parked list` has them, or --all."
        raise Refusal(msg)
    read = await uri_of(here, group, uri)
    chosen = await _chosen(here, group, read, positions, state="parked")
    if dry_run:
        return _planned(group, read, chosen, AGAIN)
    question = f"Let {counted(len(chosen), 'message')} run again?"
    if not _agreed(here, chosen, AGAIN, question, yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    done = await here.outbox.parked.retry(group, read, positions=[each.position for each in chosen])
    return _answer(group, read, done, "will run again")


async def skip(
    here: Here,
    group: Group,
    positions: Positions = None,
    uri: Uri = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """End messages that wait, parked or not, without handling them."""
    if not positions:
        msg = "Say which: positions, as `parked list --state all` has them."
        raise Refusal(msg)
    read = await uri_of(here, group, uri)
    chosen = await _chosen(here, group, read, positions, state=None)
    if dry_run:
        return _planned(group, read, chosen, UNHANDLED)
    question = f"End {counted(len(chosen), 'message')} without handling them?"
    if not _agreed(here, chosen, UNHANDLED, question, yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    done = await here.outbox.parked.skip(group, *(each.position for each in chosen), uri=read)
    return _answer(group, read, done, "ended unhandled")


async def _chosen(
    here: Here, group: str, uri: str, positions: list[int] | None, *, state: str | None
) -> list[DeferredMessage]:
    """What is there now of these positions, or of all: what is parked after the look is not part of it."""
    wanted = None if positions is None else set(positions)
    found: list[DeferredMessage] = []
    last: DeferredMessage | None = None
    while True:
        page = await here.outbox.parked.list(group, uri, state=state, limit=AT_ONCE, after=last)
        # Without their bodies: there may be many.
        found += [replace(each, message=None) for each in page if wanted is None or each.position in wanted]
        if len(page) < AT_ONCE:
            break
        last = page[-1]
    if not found:
        msg = f"Nothing of group {group!r} matches: `parked list --state all` has what waits."
        raise Refusal(msg, Exit.NOTHING)
    return found


def _planned(group: str, uri: str, chosen: list[DeferredMessage], title: str) -> Answer:
    """What would happen, and nothing is done."""
    plan = {"group": group, "uri": uri, "positions": [each.position for each in chosen], "is_done": False}
    return Answer(plan, _plan(chosen, title))


def _plan(chosen: list[DeferredMessage], title: str) -> list[Block]:
    blocks: list[Block] = [deferred_grid(chosen[:MOST_SHOWN], title)]
    if len(chosen) > MOST_SHOWN:
        blocks.append(Said(f"… and {len(chosen) - MOST_SHOWN:,} more"))
    return blocks


def _agreed(here: Here, chosen: list[DeferredMessage], title: str, question: str, *, yes: bool) -> bool:
    if not (yes and here.printer.as_json):
        here.printer.plan(_plan(chosen, title))
    return agreed(question, yes=yes)


def _answer(group: str, uri: str, done: Sequence[int], what: str) -> Answer:
    data = {"group": group, "uri": uri, "positions": done, "is_done": bool(done)}
    said = f"{counted(len(done), 'message')} of group {group!r} {what}."
    return Answer(data, [Said(said)], Exit.FINE if done else Exit.NOTHING)
