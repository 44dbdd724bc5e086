"""Topics: spans of slots, blocked keys, and what is deferred."""

from collections.abc import Sequence

from faststream_outbox._internal.cli import shown
from faststream_outbox._internal.cli.blocks import Block, Grid, Marked
from faststream_outbox._internal.cli.views.processes import process_named
from faststream_outbox._internal.log.deferral.parked import DeferredMessage
from faststream_outbox._internal.log.sharing.spans import Cursor
from faststream_outbox._internal.overview.topics import BlockedKey, SlotStatus


def place_text(cursor: Cursor) -> str:
    """A place, as `groups seek` takes it."""
    return f"{cursor.tick}:{cursor.position}"


def lag_blocks(slots: Sequence[SlotStatus], blocked: Sequence[BlockedKey]) -> list[Block]:
    """Spans, and below them the keys that wait."""
    rows = [
        (
            f"{each.slots[0]}-{each.slots[1]}",
            f"{each.tick}:{each.position}",
            shown.count(each.messages, is_estimate=each.is_estimate),
            shown.age(each.seconds) if each.messages else "-",
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
                shown.count(each.waiting, is_estimate=each.is_estimate),
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
            None if each.error_message is None else shown.glance(each.error_message.encode(errors="replace"), 50),
            each.updated_at,
        )
        for each in messages
    ]
    return Grid(columns, rows, title, "Nothing waits.")
