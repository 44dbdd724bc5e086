"""`status`, `queues`, `workers`: how things stand, without changing anything."""

import os
from datetime import timedelta
from typing import Annotated

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.moments import parse_length
from faststream_outbox._internal.cli.problems import Limits, problems
from faststream_outbox._internal.cli.views.processes import process_grid
from faststream_outbox._internal.cli.views.queues import queue_grid, status_blocks
from faststream_outbox._internal.queue.admin.pause import check_known


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(status)
    command(app)(queues)
    command(app)(workers)


async def status(
    here: Here,
    fail_on_age: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_length, metavar="TIME", help="Exit with 1 if something is due, or unread, for longer."
        ),
    ] = None,
    fail_on_dead: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if a queue has more dead letters.")
    ] = None,
    fail_on_parked: Annotated[
        int | None, typer.Option(min=0, help="Exit with 1 if a group has more parked messages.")
    ] = None,
) -> Answer:
    """Queues, groups, and what is wrong, on one screen."""
    overview = here.overview
    of_queues = None if here.place.table is None else await overview.queues()
    of_groups = None if here.place.log_tables is None else await overview.groups()
    wrong = problems(of_queues or (), of_groups or (), Limits(fail_on_age, fail_on_dead, fail_on_parked))
    is_over = any(problem.severity == "critical" for problem in wrong)
    data = {"queues": of_queues or [], "groups": of_groups or [], "problems": wrong}
    return Answer(data, status_blocks(of_queues, of_groups, wrong), Exit.WRONG if is_over else Exit.FINE)


async def queues(here: Here, queue: Annotated[str | None, typer.Argument(help="Only this one.")] = None) -> Answer:
    """Queues: how many messages are ready, leased, scheduled and dead, and how old the oldest is."""
    _ = here.table
    found = await here.overview.queues(queue)
    if queue is not None and not found:
        await check_known(here.client, queue)
    return Answer(found, [queue_grid(found)])


async def workers(here: Here) -> Answer:
    """Processes that work on these tables, by the connections that the server knows; this one left out."""
    ours = os.getpid()
    found = [each for each in await here.overview.processes() if (each.pid, each.roles) != (ours, ("overview",))]
    return Answer(found, [process_grid(found)])
