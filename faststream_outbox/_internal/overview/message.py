"""One message, dead or alive, with everything that is known about it: its state, why it does not run, who holds it.

By its id it is found at once. There is no index by `message_id`, and none of dead letters by the id that the message
had: these are searched for from the newest on, in slices, as long as the question's time lasts. What was not found by
then is no "there is none": the question fails, and says how far it got. Dead letters are only looked at here, singly
and by what failed alike; replaying is `queue.DeadLetters`. Asked by `Overview`, on its connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import worker_id_of
from faststream_outbox._internal.options import MOST_ROWS, check_count, check_number
from faststream_outbox._internal.overview.processes import Process
from faststream_outbox._internal.publish.put import Unprocessed, as_unprocessed
from faststream_outbox._internal.queue.dead_letters import DeadLetter, ErrorGroup, Selection, as_letter, check_selection
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.overview_rows import MessageRow, SearchedRow
from faststream_outbox._internal.sql.queue_rows import DeadGroupRow, DeadLetterRow, UnprocessedRow
from faststream_outbox._internal.sql.statements import named, statements
from faststream_outbox._internal.text import spoken

MOST_GROUPED = 100_000
"""Dead letters that are grouped: the newest."""


async def fetch_groups(connection: DedicatedConnection, names: Names) -> list[ErrorGroup]:
    """The newest dead letters that failed alike."""
    rows = await connection.fetch(statements("overview", names)["group_newest_dead"], {"most": MOST_GROUPED})
    return [ErrorGroup(*row) for row in named(DeadGroupRow, rows)]


async def fetch_letters(
    connection: DedicatedConnection, names: Names, selection: Selection, limit: int, after: int
) -> list[DeadLetter]:
    """Dead letters by id."""
    check_selection(selection)
    check_count("limit", limit, most=MOST_ROWS)
    check_number("after", after)
    values = selection.values() | {"limit": limit, "after": after}
    rows = await connection.fetch(statements("overview", names)["dead_after"], values)
    return [as_letter(row) for row in named(DeadLetterRow, rows)]


State = Literal["ready", "scheduled", "leased", "blocked", "paused", "dead"]
SLICE = 20_000
"""Rows that one statement looks through."""
BEHIND_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """A message of a queue, or the dead letter that it became."""

    state: State
    """"blocked": another message of its key comes first."""
    why: str
    """The state in a sentence, with the time, the holder or the message that it waits for."""
    message: Unprocessed | None
    dead_letter: DeadLetter | None
    holder: Process | None
    """Who holds its lease, if the server still knows a connection of that process."""
    holder_id: str | None
    """The worker id in the lease's token, also of a process that is gone."""
    waits_for: int | None
    """The id of the message of the same key that must be finished first."""


@dataclass(slots=True)
class Searched:
    """How far a search has got, for whoever has to say that it was given up."""

    rows: int = 0


def living_status(row: MessageRow, holder: Process | None, *, ttl: float, is_standby: bool) -> MessageStatus:
    """The status of a message in the table; pure."""
    state, why = _decided(row, ttl)
    waits_for = row.head_id if state == "blocked" else None
    holder_id = worker_id_of(row.acquired_token)
    if state == "leased":
        why += _holder(holder, is_standby=is_standby)
    message = as_unprocessed(row[: len(UnprocessedRow._fields)])
    held = holder if state == "leased" else None
    return MessageStatus(state, why, message, None, held, holder_id, waits_for)


def _decided(row: MessageRow, ttl: float) -> tuple[State, str]:
    now, is_due = row.server_now, row.next_attempt_at <= row.server_now
    leased_for = None if row.acquired_at is None else now - row.acquired_at
    pause = f" Its queue {row.queue!r} is paused." if row.is_paused else ""
    if leased_for is not None and leased_for <= timedelta(seconds=ttl):
        worker = worker_id_of(row.acquired_token)
        return "leased", f"Worker {worker} has had it, or renewed its lease, {spoken(leased_for)} ago.{pause}"
    if row.is_set_apart:
        return "scheduled", (
            "It was set apart, out of reach of every claim: fetching it or writing its outcome failed again and again."
        )
    if not is_due:
        what = "Its timer" if row.timer_id is not None and not row.attempts_count else "Its next attempt"
        tried = f" after {row.attempts_count} failed" if row.attempts_count else ""
        return "scheduled", f"{what}{tried} is due in {spoken(row.next_attempt_at - now)}.{pause}"
    if row.is_paused:
        return "paused", f"Its queue {row.queue!r} is paused."
    if row.head_id is not None and row.head_id < row.id:
        return "blocked", _blocked(row, now)
    waiting = f"It has been due for {spoken(now - row.next_attempt_at)}, and nobody has claimed it"
    ended = ""
    if leased_for is not None:
        worker = worker_id_of(row.acquired_token)
        ended = f" since worker {worker} last renewed its lease, {spoken(leased_for)} ago"
    held = ""
    if row.dead_of_key is not None:
        held = f" Where on_dead='block', it waits for dead letter {row.dead_of_key} of its key."
    return "ready", f"{waiting}{ended}.{held}"


def _blocked(row: MessageRow, now: datetime) -> str:
    first = f"Message {row.head_id} of its key {row.key!r} comes first"
    if row.is_head_leased:
        return f"{first}, and is being handled."
    if row.head_due_at is not None and row.head_due_at > now:
        return f"{first}, and is tried again in {spoken(row.head_due_at - now)}."
    return f"{first}, and nobody has claimed that yet."


def _holder(holder: Process | None, *, is_standby: bool) -> str:
    if holder is not None:
        return f" It runs on {holder.host}, process {holder.pid}."
    if is_standby:
        return " Who that is, only the primary knows: this is a read replica."
    return " The server knows no connection of it now: it has ended, or a pooler stands in between."


def dead_status(letter: DeadLetter) -> MessageStatus:
    """The status of a message that is dead; pure."""
    error = "" if letter.error_type is None else f": {letter.error_type}"
    why = (
        f"It died after {letter.attempts_count} attempts and {letter.deliveries_count} deliveries, "
        f"{letter.failure_reason!r}{error}. It is dead letter {letter.id}."
    )
    return MessageStatus("dead", why, None, letter, None, None, None)


async def fetch_message(connection: DedicatedConnection, names: Names, id_: int, ttl: float) -> MessageRow | None:
    """A message in the table."""
    rows = await connection.fetch(statements("overview", names)["message_by_id"], {"id": id_, "ttl": ttl})
    return next(iter(named(MessageRow, rows)), None)


async def find_id(connection: DedicatedConnection, names: Names, message_id: UUID, searched: Searched) -> int | None:
    """The id of the message that has this message_id."""
    return await _search(connection, names, "search_messages", {"message_id": message_id}, searched)


async def find_letter(
    connection: DedicatedConnection, names: Names, wanted: int | UUID, searched: Searched
) -> DeadLetter | None:
    """The newest dead letter of a message."""
    if names.dead is None:
        return None
    is_id = isinstance(wanted, int)
    values = {"message_id": None if is_id else wanted, "original_id": wanted if is_id else None}
    found = await _search(connection, names, "search_dead", values, searched)
    if found is None:
        return None
    chosen = Selection(ids=[found]).values() | {"limit": 1, "after": 0}
    rows: Sequence[Any] = await connection.fetch(statements("overview", names)["dead_after"], chosen)
    return next((as_letter(row) for row in named(DeadLetterRow, rows)), None)


async def _search(
    connection: DedicatedConnection, names: Names, name: str, values: Mapping[str, Any], searched: Searched
) -> int | None:
    sql = statements("overview", names)[name]
    before: int | None = BEHIND_ALL
    while before is not None:
        (row,) = named(SearchedRow, await connection.fetch(sql, {**values, "before": before, "slice": SLICE}))
        searched.rows += row.seen
        if row.found is not None:
            return row.found
        before = row.last if row.seen == SLICE else None
    return None
