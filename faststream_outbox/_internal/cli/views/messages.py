"""Messages of queues: many on a line each, or one in full."""

from collections.abc import Sequence
from datetime import datetime

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.cli.blocks import Block, Body, Cell, Facts, Grid, Mark, Marked, Quoted
from faststream_outbox._internal.cli.views.dead import letter_view
from faststream_outbox._internal.cli.views.processes import process_named
from faststream_outbox._internal.overview.message import MessageStatus
from faststream_outbox._internal.overview.unprocessed import Unprocessed

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
            shown.glance(each.payload),
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
        blocks.append(Quoted(shown.mapping(message.headers), "headers"))
    return [*blocks, Body(message.payload, is_full=is_full)]
