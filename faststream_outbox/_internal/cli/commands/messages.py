"""`peek` and `show`: messages as they stand in the table, without leasing them; `timers list` and `timers cancel`.

Many messages are shown a line each, one in full, with why it does not run. Added to the application by `app`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from faststream_outbox._internal.cli.command import command
from faststream_outbox._internal.cli.commands.dead import letter_view
from faststream_outbox._internal.cli.commands.status import process_named
from faststream_outbox._internal.cli.exits import (
    Answer,
    Block,
    Body,
    Cell,
    Exit,
    Facts,
    Grid,
    Mark,
    Marked,
    Quoted,
    Refusal,
    Said,
)
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import Full, Limit
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.overview.message import MessageStatus
from faststream_outbox._internal.overview.queues import TimerStatus
from faststream_outbox._internal.publish.put import Unprocessed, fetch_unprocessed
from faststream_outbox._internal.queue.pause import check_known
from faststream_outbox._internal.text import glance, mapping, parsed_id
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
    is_cancelled = await here.cancel_timer(queue, timer_id)
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


_MARKS: dict[str, Mark] = {
    "ready": "good",
    "scheduled": "plain",
    "leased": "notice",
    "blocked": "warning",
    "paused": "warning",
    "dead": "bad",
}


def peek_grid(messages: Sequence[Unprocessed], now: datetime) -> Grid:
    """A row for each message."""
    columns = ("id", "due", "state", "attempts", "key", "priority", "timer", "body")
    rows = [
        (
            str(each.id),
            each.next_attempt_at,
            _state(each, now),
            each.attempts_count,
            each.key,
            each.priority,
            each.timer_id,
            glance(each.payload),
        )
        for each in messages
    ]
    return Grid(columns, rows, empty="The queue is empty.")


def _state(message: Unprocessed, now: datetime) -> str:
    """What the row alone says; another message of its key, or a pause, may hold it back."""
    if message.acquired_token is not None:
        return "leased"
    return "ready" if message.next_attempt_at <= now else "scheduled"


def message_view(status: MessageStatus, *, is_full: bool) -> list[Block]:
    """One message, or the dead letter that it became."""
    state = Facts([("state", Marked(status.state, _MARKS.get(status.state, "plain"))), ("why", status.why)])
    blocks: list[Block] = [state]
    if status.message is not None:
        blocks += _message(status.message, status, is_full=is_full)
    if status.dead_letter is not None:
        blocks += letter_view(status.dead_letter, is_full=is_full)
    return blocks


def _message(message: Unprocessed, status: MessageStatus, *, is_full: bool) -> list[Block]:
    pairs: list[tuple[str, Cell]] = [
        ("id", str(message.id)),
        ("message id", str(message.message_id)),
        ("queue", message.queue),
        ("key", message.key),
        ("priority", message.priority),
        ("timer", message.timer_id),
        ("attempts", message.attempts_count),
        ("deliveries", message.deliveries_count),
        ("created", message.created_at),
        ("due", message.next_attempt_at),
        ("first attempt", message.first_attempt_at),
        ("last attempt", message.last_attempt_at),
        ("leased at", message.acquired_at),
        ("held by", process_named(status.holder, status.holder_id)),
        ("waits for", None if status.waits_for is None else str(status.waits_for)),
    ]
    blocks: list[Block] = [Facts([pair for pair in pairs if pair[1] is not None])]
    if message.headers:
        blocks.append(Quoted(mapping(message.headers), "headers"))
    return [*blocks, Body(message.payload, is_full=is_full)]


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
    found = parsed_id(id)
    if found is None:
        msg = f"{id!r} is neither the number of a message nor a UUID."
        raise Refusal(msg)
    return found
