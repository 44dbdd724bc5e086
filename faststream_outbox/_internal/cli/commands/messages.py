"""`peek` and `show`: messages of queues as they stand in the table, without leasing them."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit, Refusal
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Full, Limit
from faststream_outbox._internal.cli.views.messages import message_view, peek_grid
from faststream_outbox._internal.overview.unprocessed import fetch_unprocessed
from faststream_outbox._internal.queue.admin.pause import check_known


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(peek)
    command(app)(show)


async def peek(
    here: Here, queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")], limit: Limit = 20
) -> Answer:
    """The messages of a queue that fall due next."""
    async with here.engine.connect() as connection:
        found = await fetch_unprocessed(connection, here.table, queue=queue, limit=limit)
    if not found:
        await check_known(here.client, queue)
    return Answer(found, [peek_grid(found, datetime.now(UTC))])


async def show(
    here: Here,
    id: Annotated[str, typer.Argument(metavar="ID", help="The message's id, or its message_id.")],
    full: Full = False,
) -> Answer:
    """One message with everything that is known: its state, why it does not run, who holds it."""
    _ = here.table
    found = await here.overview.message(_parsed(id))
    if found is None:
        msg = f"No message {id} is there, nor a dead letter of it: it is done, or never was."
        raise Refusal(msg, Exit.NOTHING)
    return Answer(found, message_view(found, is_full=full))


def _parsed(id: str) -> int | UUID:
    try:
        return int(id) if id.isascii() and id.isdecimal() and int(id) < 2**63 else UUID(id)
    except ValueError:
        msg = f"{id!r} is neither the number of a message nor a UUID."
        raise Refusal(msg) from None
