"""`inbox list` and `inbox clean`: receipts of messages that have taken effect."""

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from faststream_outbox._internal.cli.asking import agreed, following
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit, Facts, Grid, Refusal, Said
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import DryRun, Yes, parse_length
from faststream_outbox._internal.inbox.receipts import MOST_COUNTED, Receipts
from faststream_outbox._internal.schema.names import Names, schema_map_of
from faststream_outbox._internal.text import age, count, counted


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    inbox = typer.Typer(no_args_is_help=True, help="Receipts of messages that have taken effect.")
    command(inbox, "list")(list_receipts)
    command(inbox)(clean)
    app.add_typer(inbox, name="inbox")


async def list_receipts(here: Here) -> Answer:
    """Receipts by consumer."""
    counts = await _receipts(here).count()
    rows = [(each.consumer, count(each.receipts, is_estimate=each.is_estimate)) for each in counts.consumers]
    times = Facts([("first", counts.first_received_at), ("last", counts.last_received_at)])
    return Answer(counts, [Grid(("consumer", "receipts"), rows, empty="There are no receipts."), times])


async def clean(
    here: Here,
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=parse_length, metavar="TIME", help="How long receipts stay: longer than a broker repeats itself."
        ),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """Delete old receipts of all consumers; such a message would be handled again, should it come again."""
    receipts = _receipts(here)
    old = await receipts.count_old(older_than)
    number = count(old, is_estimate=old >= MOST_COUNTED)
    plan = Said(f"{number} receipts are older than {age(older_than.total_seconds())}.")
    if dry_run:
        return Answer({"old": old, "is_estimate": old >= MOST_COUNTED}, [plan])
    if not old:
        msg = "No receipt is that old."
        raise Refusal(msg, Exit.NOTHING)
    if not yes:
        here.printer.plan([plan])
    if not agreed("Delete them?", yes=yes):
        return Answer(None, [Said("Nothing is done.")], Exit.WRONG)
    cleaned = 0
    with following("deleting", old) as follow:

        def note(done: int) -> None:
            nonlocal cleaned
            cleaned = done
            follow(done)

        try:
            await receipts.clean(older_than, note)
        except asyncio.CancelledError:
            said = Said(f"Interrupted: at least {counted(cleaned, 'receipt')} deleted.")
            return Answer({"cleaned": cleaned}, [said], Exit.INTERRUPTED)
    return Answer({"cleaned": cleaned}, [Said(f"{counted(cleaned, 'receipt')} deleted.")])


def _receipts(here: Here) -> Receipts:
    return Receipts(here.connection(), Names.of(here.inbox_table, schema_map=schema_map_of(here.engine)))
