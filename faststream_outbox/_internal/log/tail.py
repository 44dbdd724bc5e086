"""The tail of the log, read once for all members of the process that have read everything else.

Such a member takes a seat. New ticks are read once, with what all who are seated want together, and handed to those
whose messages are among them. The others have passed over them and are not even woken: how far they came is written
once a second, by one statement for all. Whoever is behind, because it has work to do, reads for itself, so that
nothing is read here for somebody who could not take it. Run by the client; `reader` takes a seat when it waits.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.log.fetcher import Fetcher
from faststream_outbox._internal.log.member import Member, Portion
from faststream_outbox._internal.log.ordering.timeline import Timeline, window
from faststream_outbox._internal.log.sharing.slots import BEGINNING, Cursor, Span, filters_of, slots_of
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.service import Pulse, called, retrying
from faststream_outbox._internal.sql.log_rows import ReadMessage
from faststream_outbox._internal.sql.statements import column, statements

WIDEST_WINDOW = 20_000
MESSAGES_AT_ONCE = 500
PROGRESS_SECONDS = 1.0
STOP_SECONDS = 0.1
"""How soon a member that waits for the answer to a statement notices that it is to stop."""


@dataclass(slots=True, eq=False)
class Seat:
    """A member that waits at the end of the log: with which spans, and how far they are known to have come."""

    member: Member
    spans: Sequence[Span]
    slots: int
    cursor: Cursor


class Tail:
    """Who waits at the end of one log, and what is read for them."""

    def __init__(
        self,
        connection: DedicatedConnection,
        names: LogNames,
        timeline: Timeline,
        fetcher: Fetcher,
        emitter: Events,
        outage: Outage,
    ) -> None:
        self._connection = connection
        self._timeline = timeline
        self._fetcher = fetcher
        self._events = emitter
        self._outage = outage
        self._seats: dict[Member, Seat] = {}
        self._by_uri: dict[str, set[Seat]] = {}
        self._standing: set[Member] = set()
        """Members that wait elsewhere than at the end: they read for themselves whenever there is something new."""
        self._place = BEGINNING
        """Everything up to here was read for all who are seated."""
        self._stamp: datetime | None = None
        self._generation = -1
        self._news = asyncio.Event()
        self.pulse: Pulse = Pulse()
        self.pulse_of_writing: Pulse = Pulse()
        self.heard: int = 0
        """Counts how often there was news."""
        self._poll_at = float("inf")
        self._polled_at = 0.0
        self._writing: set[Member] = set()
        self._written: asyncio.Future[None] | None = None
        self._move = statements("group", names)["move_each"]

    def hear(self) -> None:
        """There may be something new."""
        self.heard += 1
        self._news.set()

    def join(self, member: Member) -> bool:
        """Wait for messages behind the last one; False if the member has to read for itself from time to time."""
        timeline = self._timeline
        spans = member.readable()
        if not spans:
            return False
        cursors = {span.cursor for span in spans}
        generation = timeline.of(self._connection)
        if len(cursors) == 1 and member.generation == generation:
            (cursor,) = cursors
            if not self._seats and (cursor == BEGINNING or (timeline.last and cursor.tick <= timeline.last.number)):
                self._place, self._stamp, self._generation = cursor, None, generation
                self._polled_at = asyncio.get_running_loop().time()
            if cursor >= self._place and self._generation == generation:
                self._sit(Seat(member, spans, slots_of(spans), cursor))
                return True
        self._standing.add(member)
        if member.heard != self.heard:
            member.wake.set()
        return False

    def _sit(self, seat: Seat) -> None:
        self._seats[seat.member] = seat
        self._by_uri.setdefault(seat.member.group.uri, set()).add(seat)
        poll_at = asyncio.get_running_loop().time() + seat.member.options.poll_interval
        if poll_at < self._poll_at or self._timeline.may_follow(self._place):
            self._poll_at = min(self._poll_at, poll_at)
            self._news.set()

    def leave(self, member: Member) -> None:
        """Wait no more; what was passed over meanwhile is noted."""
        self._standing.discard(member)
        seat = self._seats.get(member)
        if seat is not None:
            self._pass(seat)
            self._rise(seat)

    def _rise(self, seat: Seat) -> None:
        del self._seats[seat.member]
        others = self._by_uri[seat.member.group.uri]
        others.discard(seat)
        if not others:
            del self._by_uri[seat.member.group.uri]

    def _pass(self, seat: Seat) -> None:
        if self._place > seat.cursor:
            seat.member.pass_over(seat.spans, self._place, self._stamp)
            seat.cursor = self._place

    def _send_off(self, *, is_unsettled: bool) -> None:
        """Let everybody begin again where it is known to stand: what was read here may be of another log."""
        for seat in list(self._seats.values()):
            self._rise(seat)
            if is_unsettled:
                seat.member.doubt()
            seat.member.wake.set()

    async def run(self) -> None:
        """Read for all who are seated, until cancelled."""
        while True:
            await retrying(self._round, self._failed)
            self._outage.worked(asyncio.get_running_loop().time(), self)

    async def _round(self) -> None:
        """Wait until there is news or it is time to poll, and read."""
        pause = min((seat.member.options.poll_interval for seat in self._seats.values()), default=float("inf"))
        self._poll_at = self._polled_at + pause
        self.pulse.rest(pause)
        await called(self._news, self._poll_at)
        is_poll = asyncio.get_running_loop().time() >= self._poll_at
        self._news.clear()
        for member in self._standing:
            member.wake.set()
        await self._read(is_poll=is_poll)

    def _failed(self, error: Exception, _: int) -> None:
        """Have each of them try again by itself."""
        self.pulse.beat()
        self._outage.failed(error, asyncio.get_running_loop().time(), self)
        self._send_off(is_unsettled=True)

    async def _read(self, *, is_poll: bool) -> None:
        timeline, connection = self._timeline, self._connection
        while self._seats:
            self.pulse.beat()
            after, generation = self._place, self._generation
            if timeline.of(connection) != generation:
                self._send_off(is_unsettled=False)
                return
            if not is_poll and not timeline.may_follow(after):
                return
            is_poll = False
            ticks = await timeline.after(connection, after)
            self._polled_at = asyncio.get_running_loop().time()
            if not self._seats or not self._is_still(after, generation):
                # Whoever waited has something else to do by now.
                continue
            found = window(ticks, after, WIDEST_WINDOW)
            if found is None:
                return
            seats = set(self._seats.values())
            limit = max(MESSAGES_AT_ONCE, *(seat.member.options.batch_size for seat in seats))
            rows, end = await self._fetcher.read_window(found, _wanted(seats), limit)
            if self._is_still(after, generation):
                self._hand_out(rows, seats, end, found.stamps)

    def _is_still(self, place: Cursor, generation: int) -> bool:
        now = self._timeline.of(self._connection)
        return self._place == place and self._generation == generation == now

    def _hand_out(
        self, rows: Sequence[ReadMessage], asked: set[Seat], end: Cursor, stamps: Mapping[int, datetime]
    ) -> None:
        found: dict[Seat, list[ReadMessage]] = {}
        for row in rows:
            cursor, slot = Cursor(row.tick, row.position), row.slot
            for uri in filters_of(row.uri):
                for seat in self._by_uri.get(uri, ()):
                    if seat in asked and seat.slots >> slot & 1 and cursor > seat.cursor:
                        found.setdefault(seat, []).append(row)
        for seat in list(self._seats.values()):
            mine = found.get(seat)
            if mine is not None:
                self._pass(seat)
                self._rise(seat)
                seat.member.hand(Portion(mine, seat.spans, seat.cursor, end, stamps, self._generation))
            elif seat not in asked and seat.cursor < end:
                # Nothing was read for it: it came while others were read for.
                self._rise(seat)
                seat.member.wake.set()
        self._place, self._stamp = end, stamps[end.tick]

    async def write(self) -> None:
        """Write how far those have come that are seated, once a second, until cancelled."""
        while True:
            self.pulse_of_writing.beat()
            await asyncio.sleep(PROGRESS_SECONDS)
            passed: list[tuple[Member, Span]] = []
            for seat in self._seats.values():
                self._pass(seat)
                passed += [(seat.member, span) for span in seat.member.unwritten_spans()]
            if passed:
                await self._write(passed)

    async def _write(self, passed: Sequence[tuple[Member, Span]]) -> None:
        self._written = asyncio.get_running_loop().create_future()
        self._writing = {member for member, _ in passed}
        kept: set[int] = set()
        try:
            kept = set(column(await self._connection.fetch(self._move, _moves(passed))))
        except Exception as error:  # noqa: BLE001 - reported, and found out by each of them
            # Where the cursors are now is not known: whoever settled from where it believes to be would be refused.
            self._events.emit(events.StatementFailed("settling", error))
        finally:
            for number, (member, span) in enumerate(passed, 1):
                member.wrote(span, is_kept=number in kept)
            self._writing = set()
            self._written.set_result(None)

    async def written(self, member: Member) -> None:
        """Wait until it is known where the member's cursors are written; not for a server that is silent, to stop."""
        while member in self._writing and self._written is not None and not member.is_stopping:
            await asyncio.wait([self._written], timeout=STOP_SECONDS)


def _wanted(seats: Iterable[Seat]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for seat in seats:
        uri = seat.member.group.uri
        wanted[uri] = wanted.get(uri, 0) | seat.slots
    return wanted


def _moves(passed: Sequence[tuple[Member, Span]]) -> dict[str, Any]:
    return {
        "groups": [member.group.name for member, _ in passed],
        "uris": [member.group.uri for member, _ in passed],
        "owners": [member.leases.me for member, _ in passed],
        "los": [span.lo for _, span in passed],
        "epochs": [span.epoch for _, span in passed],
        "ticks": [span.cursor.tick for _, span in passed],
        "positions": [span.cursor.position for _, span in passed],
        "stamps": [span.stamp for _, span in passed],
        "from_ticks": [span.known.tick for _, span in passed],
        "from_positions": [span.known.position for _, span in passed],
    }
