"""`timers list` and `timers cancel`."""

from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.cli.blocks import Grid, Said
from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.exits import Answer, Exit, Refusal
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Limit
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.overview.timers import TimerStatus
from faststream_outbox._internal.publish.cancel import cancel_timer
from faststream_outbox._internal.queue.admin.pause import check_known
from faststream_outbox.errors import UnknownName

MOST_NAMES = 1000
"""How many timers are compared to find the nearest one."""


def add_timers_to(app: typer.Typer) -> None:
    """Add these commands."""
    timers = typer.Typer(no_args_is_help=True, help="Timers that have not fired yet.")
    command(timers, "list")(list_timers)
    command(timers)(cancel)
    app.add_typer(timers, name="timers")


async def list_timers(
    here: Here, queue: Annotated[str | None, typer.Argument(help="Only of this queue.")] = None, limit: Limit = 20
) -> Answer:
    """Timers that have not fired, the next one first."""
    _ = here.table
    found = await here.overview.timers(queue, limit=limit)
    if queue is not None and not found:
        await check_known(here.client, queue)
    rows = [
        (each.queue, each.timer_id, str(each.id), each.due_at, each.attempts_count, "leased" if each.is_leased else "")
        for each in found
    ]
    grid = Grid(("queue", "timer", "id", "due", "attempts", ""), rows, empty="No timer waits.")
    return Answer(found, [grid])


async def cancel(
    here: Here,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The timer's queue.")],
    timer_id: Annotated[str, typer.Argument(metavar="TIMER", help="The timer_id that it was published with.")],
) -> Answer:
    """Take a timer back before it fires."""
    wakeups = here.client.wakeups
    async with AsyncSession(here.engine) as session, session.begin():
        is_cancelled = await cancel_timer(session, here.table, queue=queue, timer_id=timer_id, wakeups=wakeups)
    data = {"queue": queue, "timer_id": timer_id, "is_cancelled": is_cancelled}
    if is_cancelled:
        return Answer(data, [Said(f"Timer {timer_id!r} of queue {queue!r} is cancelled.")])
    await check_known(here.client, queue)
    found = await here.overview.timers(queue, limit=MOST_NAMES)
    raise _not_cancelled(queue, timer_id, {each.timer_id: each for each in found})


def _not_cancelled(queue: str, timer_id: str, known: dict[str, TimerStatus]) -> Exception:
    if timer_id in known:
        msg = f"Timer {timer_id!r} fires right now: a worker holds it, so it cannot be taken back."
        return Refusal(msg, Exit.WRONG)
    return UnknownName(f"Queue {queue!r} has no timer {timer_id!r}; {nearest(timer_id, known, 'timer')}")
