"""Dead letters for operators: find, group, edit, replay, purge.

A replay works on a frozen selection: what dies while it runs is not part of it. It puts messages back under their own
ids, oldest first, so that a key's order holds, and sees to it that nobody draws these ids again; it can be counted
first without doing anything, slowed down, and followed. A message whose `timer_id` was taken meanwhile stays dead and
is reported. Used by operators, through the broker's client too.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.caller import Rows
from faststream_outbox._internal.envelope import Envelope, checked, read_headers
from faststream_outbox._internal.options import (
    BIGINT,
    MOST_ROWS,
    check_count,
    check_moment,
    check_number,
    check_text,
    checked_flag,
)
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.service import unbroken
from faststream_outbox._internal.sql.queue_rows import (
    DeadGroupRow,
    DeadLetterRow,
    HighestDeadRow,
    PurgedLetterRow,
    ReplayedRow,
)
from faststream_outbox._internal.sql.statements import column, named
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import InvalidOption, InvalidOptionType

SLICE = 100
"""How many dead letters one transaction puts back."""
MOST_DRAWN = 10_000
"""Ids that are drawn one by one. Where more are missing, nobody draws so many while the sequence is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters; what is None does not narrow.

    ids: of dead letters, not of the messages that they were.
    queue: of one queue.
    key: of one key.
    reason: why they died: "retry_terminal", "rejected", "max_deliveries", "crash_loop" or "undecided".
    error_type: the name of the exception's class.
    since: died at this time or later.
    until: died before this time.
    everything: all of them, where nothing else is said.
    """

    ids: Sequence[int] | None = None
    queue: str | None = None
    key: str | None = None
    reason: str | None = None
    error_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        for name in ("queue", "key", "reason", "error_type"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                check_moment(name, getattr(self, name))
        if self.ids is not None:
            _check_ids(self.ids)
        checked_flag("everything", self.everything)

    def values(self) -> dict[str, Any]:
        """The statements' parameters; refuses a selection that says nothing."""
        values = asdict(self)
        if not values.pop("everything") and all(value is None for value in values.values()):
            msg = "This selects every dead letter. If that is meant, pass Selection(everything=True)."
            raise InvalidOption(msg)
        values["ids"] = None if self.ids is None else list(self.ids)
        return values


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good."""

    id: int
    original_id: int
    message_id: UUID
    queue: str
    payload: bytes
    headers: Mapping[str, Any]
    key: str | None
    priority: int
    timer_id: str | None
    attempts_count: int
    deliveries_count: int
    created_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    failed_at: datetime
    failure_reason: str
    last_exception: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Dead letters that failed alike."""

    queue: str
    reason: str
    error_type: str | None
    count: int
    first_failed_at: datetime
    last_failed_at: datetime


@dataclass(frozen=True, slots=True)
class Replay:
    """How far a replay has got: `conflicts` are the dead letters that could not go back."""

    selected: int
    replayed: int = 0
    conflicts: tuple[int, ...] = ()


class DeadLetters:
    """The dead letters of one client's tables; every call is a transaction of its own.

    client: one with a dlq_table; a broker's is `broker.client`.
    """

    def __init__(self, client: OutboxClient) -> None:
        check_client(client)
        if client.dlq_table is None:
            msg = "There is no dead-letter table: pass dlq_table=make_dlq_table(metadata) to the client."
            raise InvalidOption(msg)
        self._client = client

    async def _fetch(self, name: str, values: Mapping[str, Any]) -> Rows:
        return await self._client.control(name, values, file="dead")

    async def _number(self, name: str, values: Mapping[str, Any]) -> int:
        """What a statement says that returns one number."""
        (number,) = column(await self._fetch(name, values))
        return int(number)

    async def newest(self) -> int:
        """The id of the newest dead letter, 0 without one: what dies later has a higher id.

        For whoever looks first and acts then: `summary`, `replay` and `purge` leave out what is newer than `up_to`.
        """
        return await self._number("frontier", {})

    async def _selected(self, selection: Selection, up_to: int | None) -> dict[str, Any]:
        check_selection(selection)
        if up_to is not None:
            check_number("up_to", up_to)
        return selection.values() | {"frontier": await self.newest() if up_to is None else up_to}

    async def find(self, selection: Selection, *, limit: int = 100, before: int | None = None) -> list[DeadLetter]:
        """Dead letters, newest first.

        selection: which.
        limit: how many at most.
        before: the last id of the page before.
        """
        check_selection(selection)
        check_count("limit", limit, most=BIGINT.stop - 1)
        if before is not None:
            check_number("before", before)
        values = selection.values() | {"limit": limit, "before": before or BIGINT.stop - 1}
        rows = await self._fetch("list_dead", values)
        return [as_letter(row) for row in named(DeadLetterRow, rows)]

    async def groups(self, queue: str | None = None) -> list[ErrorGroup]:
        """How many failed alike, the most numerous first.

        queue: only of this one; None is of all.
        """
        if queue is not None:
            check_text("queue", queue)
        return [_group(row) for row in named(DeadGroupRow, await self._fetch("group_dead", {"queue": queue}))]

    async def count(self, selection: Selection) -> int:
        """How many there are.

        selection: which.
        """
        return await self._number("count_dead", await self._selected(selection, None))

    async def summary(self, selection: Selection, *, up_to: int | None = None) -> list[ErrorGroup]:
        """How many of a selection failed alike, the most numerous first: what a replay or a purge would be about.

        selection: which.
        up_to: the newest id that is part of it, as `newest` gave it; None is the newest now.
        """
        rows = await self._fetch("group_selected", await self._selected(selection, up_to))
        return [_group(row) for row in named(DeadGroupRow, rows)]

    async def replay(
        self,
        selection: Selection,
        *,
        dry_run: bool = False,
        rate: float | Callable[[Replay], float] | None = None,
        slice_size: int = SLICE,
        on_progress: Callable[[Replay], object] | None = None,
        up_to: int | None = None,
    ) -> Replay:
        """Put the selection back into its queues; how far it got.

        selection: which.
        dry_run: only count.
        rate: at most so many messages a second, or a function that says it anew for each slice, of how far the replay
            has got; None is as fast as it goes.
        slice_size: how many in one transaction.
        on_progress: called after each slice.
        up_to: the newest id that is part of it, as `newest` gave it; None is the newest now.
        """
        check_count("slice_size", slice_size, most=MOST_ROWS)
        now = _rate_now(rate, Replay(0))
        values = await self._selected(selection, up_to)
        progress = Replay(selected=await self._number("count_dead", values))
        if dry_run:
            return progress
        await self._pass_ids(values)
        values |= {"slice": _slice(slice_size, now), "after_original": None, "after_id": None}
        while True:
            # Whoever is stopped meanwhile still tells of the slice that the server has put back.
            progress, count = await unbroken(self._replay_slice(values, progress, on_progress))
            if not count:
                return progress
            if now is not None:
                await asyncio.sleep(count / now)
                now = _rate_now(rate, progress)
                values["slice"] = _slice(slice_size, now)

    async def _replay_slice(
        self, values: dict[str, Any], progress: Replay, on_progress: Callable[[Replay], object] | None
    ) -> tuple[Replay, int]:
        """Put the next ones back; how far it got, and how many they were."""
        rows = named(ReplayedRow, await self._fetch("replay", values))
        if not rows:
            return progress, 0
        values |= {"after_id": rows[-1].id, "after_original": rows[-1].original_id}
        back = [row for row in rows if row.is_back]
        refused = tuple(row.id for row in rows if not row.is_back)
        progress = Replay(progress.selected, progress.replayed + len(back), progress.conflicts + refused)
        self._wake(back)
        if on_progress is not None:
            on_progress(progress)
        return progress, len(rows)

    async def _pass_ids(self, values: Mapping[str, Any]) -> None:
        """Move the table's sequence behind what comes back: after a restore it may lie before that.

        Otherwise the application's next messages would draw the same ids.
        """
        table = self._client.names.table
        (highest,) = named(HighestDeadRow, await self._fetch("highest_dead", {**values, "table": table}))
        top, last = highest.top, highest.last
        while top is not None and last is not None and last < top:
            missing = top - last
            if missing > MOST_DRAWN and highest.may_set:
                await self._fetch("set_last_id", {"sequence": highest.sequence, "last": top})
                return
            last = await self._number("draw_ids", {"sequence": highest.sequence, "count": min(missing, MOST_DRAWN)})

    def _wake(self, rows: Sequence[ReplayedRow]) -> None:
        for queue, keyed, priority in {(row.queue, row.is_keyed, row.priority) for row in rows}:
            self._client.wakeups.tell(Hint(queue, priorities=frozenset((priority,)), keyed=keyed, keyless=not keyed))

    async def edit(
        self, letter_id: int, *, payload: bytes | None = None, headers: Mapping[str, Any] | None = None
    ) -> bool:
        """Change the body or the headers; False if there is no such dead letter.

        letter_id: which.
        payload: the new body, as bytes; None keeps it.
        headers: the new headers; None keeps them.
        """
        check_number("letter_id", letter_id)
        row = checked(Envelope(queue="edit", body=b"" if payload is None else payload, headers=headers))
        values = {"id": letter_id, "payload": None if payload is None else row.payload, "headers": row.headers}
        return bool(await self._fetch("edit_dead", values))

    async def edit_and_replay(
        self, letter_id: int, *, payload: bytes | None = None, headers: Mapping[str, Any] | None = None
    ) -> Replay:
        """Change one dead letter and put it back.

        letter_id: which.
        payload: the new body, as bytes; None keeps it.
        headers: the new headers; None keeps them.
        """
        await self.edit(letter_id, payload=payload, headers=headers)
        return await self.replay(Selection(ids=[letter_id]))

    async def purge(
        self,
        selection: Selection,
        *,
        slice_size: int = 1000,
        rate: float | None = None,
        on_progress: Callable[[int], object] | None = None,
        up_to: int | None = None,
    ) -> int:
        """Delete the selection for good; returns how many.

        selection: which.
        slice_size: how many in one transaction.
        rate: at most so many a second; None is as fast as it goes.
        on_progress: called with the number so far after each slice.
        up_to: the newest id that is part of it, as `newest` gave it; None is the newest now.
        """
        check_rate(rate)
        check_count("slice_size", slice_size, most=MOST_ROWS)
        values = await self._selected(selection, up_to) | {"slice": _slice(slice_size, rate)}
        purged, freed = 0, set[str]()
        try:
            while rows := named(PurgedLetterRow, await self._fetch("purge_dead", values)):
                purged += len(rows)
                freed.update(row.queue for row in rows if row.is_keyed)
                if on_progress is not None:
                    on_progress(purged)
                if rate is not None:
                    await asyncio.sleep(len(rows) / rate)
        finally:
            # Keys that they held back go on.
            for queue in freed:
                self._client.wakeups.tell(Hint(queue, keyless=False, scan=True))
        return purged


def check_selection(selection: object) -> None:
    """Refuse what is no selection, such as an id."""
    if not isinstance(selection, Selection):
        msg = f"selection must be a Selection, not a {type(selection).__name__}: Selection(ids=[1]), for one."
        raise InvalidOptionType(msg)


def _check_ids(ids: object) -> None:
    if not isinstance(ids, Collection) or isinstance(ids, str | bytes | Mapping):
        msg = f"ids must be a list of numbers, not {type(ids).__name__}."
        raise InvalidOptionType(msg)
    for number in ids:
        check_number("each of ids", number)


def check_client(client: object) -> None:
    """Refuse a broker in the place of its client."""
    if not isinstance(client, OutboxClient):
        msg = f"DeadLetters takes a client, not a {type(client).__name__}: a broker's is DeadLetters(broker.client)."
        raise InvalidOptionType(msg)


def check_rate(rate: object) -> None:
    """Refuse what is no number of messages a second."""
    if rate is None:
        return
    if not isinstance(rate, int | float) or isinstance(rate, bool):
        msg = f"rate must be a number of messages a second, not {type(rate).__name__}."
        raise InvalidOptionType(msg)
    if not 0 < rate < math.inf:
        msg = f"rate must be a number of messages a second above 0, not {rate}."
        raise InvalidOption(msg)


def _rate_now(rate: float | Callable[[Replay], float] | None, progress: Replay) -> float | None:
    """Messages a second at this point of a replay."""
    now = rate(progress) if callable(rate) else rate
    check_rate(now)
    return now


def _slice(most: int, rate: float | None) -> int:
    """How many one transaction takes: at most what is due in a second."""
    return most if rate is None else max(1, min(most, int(rate)))


def as_letter(row: DeadLetterRow) -> DeadLetter:
    """The dead letter of a row."""
    return DeadLetter(**{**row._asdict(), "headers": read_headers(row.headers)})


def _group(row: DeadGroupRow) -> ErrorGroup:
    return ErrorGroup(*row)
