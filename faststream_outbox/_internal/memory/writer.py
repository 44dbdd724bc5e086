"""Publishing on tables in memory: rows and events now, wake-ups now or after the commit.

What a hidden transaction wrote is handed to whoever handles it once that has committed; else the answer says what may
be handled at once. Used by the producer of the test broker.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.envelope import CheckedEnvelope, OnDuplicate, checked_queue, checked_text
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.memory.client import FakeOutboxClient
from faststream_outbox._internal.memory.tables import MemoryRow
from faststream_outbox._internal.memory.transaction import MemoryTransaction, Opened
from faststream_outbox._internal.publish.put import Unprocessed, as_unprocessed, freed, tell_published
from faststream_outbox._internal.publish.rows import hints_of, ids_of, insertion
from faststream_outbox._internal.sql.log_rows import ReadMessage
from faststream_outbox._internal.wakeup.after_commit import call_after_commit, tell_after_commit
from faststream_outbox._internal.wakeup.hint import Hint


class Put(NamedTuple):
    """What was written to queues."""

    ids: list[int | None]
    rows: list[MemoryRow]
    """What may be handled at once."""


class Appended(NamedTuple):
    """What was written to a topic."""

    positions: list[int | None]
    rows: list[ReadMessage]
    """What may be handled at once."""


class MemoryWriter:
    """Writes for publishers of one client.

    handles_at_once: whether messages are handled as they are published; else loops find them.
    """

    def __init__(self, client: FakeOutboxClient, *, handles_at_once: bool) -> None:
        self.client = client
        self._handles_at_once = handles_at_once

    def opened(self, session: Any, *, is_sync: bool = False) -> Opened:
        """The caller's session, or None, as tables in memory see it."""
        return Opened(session, is_hidden=not self._handles_at_once, is_sync=is_sync)

    def put(self, opened: Opened, rows: Sequence[CheckedEnvelope]) -> Put:
        """Write to queues."""
        client, began = self.client, perf_counter()
        ids = ids_of(rows, self.answer(opened, *insertion(rows)))
        written_rows = [row for row, number in zip(rows, ids, strict=True) if number is not None]
        report = partial(tell_published, client.events, written_rows, began)
        if opened.session is None:
            report()
        else:
            call_after_commit(opened.session, report)
        hidden = _hidden(opened)
        there = client.rows if hidden is None else hidden.own(client.tables)
        written = [row for row in there if row.id in ids]
        hints = hints_of(rows, ids)
        if opened.session is not None:
            # A session that forgets its commit is noticed.
            tell_after_commit(opened.session, _nobody, hints)
        if hidden is None:
            self._wake(hints)
            return Put(ids, written)
        self._after_commit(hidden, partial(client.committed.extend, written), partial(self._wake, hints))
        return Put(ids, [])

    def append(self, opened: Opened, messages: Sequence[OutboxMessage], on_duplicate: OnDuplicate) -> Appended:
        """Write to a topic; the rows of those that were left out as duplicates are missing."""
        client = self.client
        if opened.transaction is None:
            rows = client.log.append(messages, on_duplicate)
            client.log.keep(rows)
        else:
            rows = opened.transaction.append(client.log, messages, on_duplicate, opened.scopes)
        positions: list[int | None] = [row.position for row in rows]
        if opened.session is not None:
            tell_after_commit(opened.session, _nobody, [Hint(None)])
        hidden = _hidden(opened)
        if hidden is None:
            client.topics_changed()
            return Appended(positions, rows)
        self._after_commit(hidden, partial(client.committed_to_topics.extend, rows), client.topics_changed)
        return Appended(positions, [])

    def answer(self, opened: Opened, name: str, values: Mapping[str, Any]) -> list[Row]:
        """The rows that the named statement returns within the caller's transaction."""
        if opened.transaction is None:
            return self.client.tables.answer(name, values)
        return opened.transaction.answer(self.client.tables, name, values, opened.scopes)

    def cancel_timer(self, opened: Opened, queue: object, timer_id: object) -> bool:
        """Delete a timer that nobody holds."""
        values = {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}
        deleted = self.answer(opened, "cancel_timer", values)
        wake, hidden = partial(self._wake, freed(values["queue"], deleted)), _hidden(opened)
        if hidden is None:
            wake()
        else:
            hidden.then(wake)
        return bool(deleted)

    def unprocessed(self, opened: Opened, queue: str | None, limit: int) -> list[Unprocessed]:
        """Messages that are not finished."""
        name = "unprocessed" if queue is None else "unprocessed_of_queue"
        return [as_unprocessed(row) for row in self.answer(opened, name, {"queue": queue, "limit": limit})]

    def _after_commit(self, hidden: MemoryTransaction, keep: Callable[[], None], wake: Callable[[], None]) -> None:
        hidden.then(keep if self._handles_at_once else wake)

    def _wake(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            self.client.wakeups.tell(hint)


def _hidden(opened: Opened) -> MemoryTransaction | None:
    transaction = opened.transaction
    return transaction if transaction is not None and transaction.is_hidden else None


def _nobody(_: Hint) -> None: ...
