"""`pause` and `resume`: queues, or groups of topics, in every process."""

from typing import Annotated

import typer

from faststream_outbox._internal.cli.blocks import Said
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands.groups import uri_of
from faststream_outbox._internal.cli.exits import Answer, Refusal
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Uri
from faststream_outbox._internal.queue.admin import pause as queue_pause

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
        is_changed = await queue_pause.pause(here.client, what, create=create)
    else:
        is_changed = await here.outbox.groups.pause(what, await uri_of(here, what, uri))
    return _answer(queue, group, is_changed=is_changed, done="is paused", before="was paused already")


async def resume(here: Here, queue: Queue = None, group: OfGroup = None, uri: Uri = None) -> Answer:
    """Let it go on where it stands."""
    what = _one_of(queue, group)
    if group is None:
        is_changed = await queue_pause.resume(here.client, what)
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
