"""A member of a group: the slots that it holds, the keys that wait in them, and how far it has come.

Whoever serves all members of a process knows them by this and by nothing else: the client starts and wakes them,
`tail` reads for those that wait, `renewer` keeps their leases alive. How a member writes is in `settler`, how it
reads in `reader`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from faststream_outbox._internal.log.deferral.blocked import Blocked
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.portion import Portion
from faststream_outbox._internal.log.sharing.leases import Group, SlotLeases
from faststream_outbox._internal.log.sharing.spans import Cursor, Span
from faststream_outbox._internal.service import Pulse


class Member:
    """What one member of a group holds and knows."""

    def __init__(self, group: Group, options: ReadOptions, leases: SlotLeases, name: str = "") -> None:
        self.group = group
        self.options = options
        self.name = name or group.name
        self.leases = leases
        self.blocked = Blocked(hold=options.on_parked == "hold_key", most=options.max_deferred)
        self.wake = asyncio.Event()
        self.is_stopping = False
        self.is_unsettled = True
        """Whether slots may have to change hands, or an operator may have changed something."""
        self.is_alive: Callable[[], bool] = lambda: True
        """Whether somebody drives it."""
        self.advanced: Callable[[], None] = lambda: None
        """Called by a member that reads for long and finds nothing of its own."""
        self.pulse = Pulse()
        """Of whoever drives it; at rest where nobody does."""
        self.handling_since: float | None = None
        """Since when a batch is handled, on the clock of `monotonic`; None while none is."""
        self.portion: Portion | None = None
        """What was read for it while it waited."""
        self.generation = -1
        """Of the ticks that its places are of, as far as they are not written."""
        self.heard = 0
        """How much news there had been when it last read."""
        self._unwritten: set[int] = set()
        """Spans whose cursors have passed over messages of others and are not written yet."""

    def unsettle(self) -> None:
        """Have it arrange its slots anew before it reads on."""
        self.is_unsettled = True
        self.wake.set()

    async def begin(self) -> None:
        """Give the group its place, if that is not where the log begins."""
        if self.options.start != "earliest":
            # Makes the group: what is published from now on lies behind its place.
            await self.leases.seen()

    def readable(self) -> list[Span]:
        """Spans that may go on."""
        halted = self.blocked.halted() if self.blocked.keys else ()
        return [s for s in self.leases.spans.values() if not (halted and s.size == 1 and s.lo in halted)]

    def pass_over(self, spans: Sequence[Span], cursor: Cursor, stamp: datetime | None) -> None:
        """Remember that there was nothing for us up to here; written with the next batch, or by and by.

        A place in a tick that is not there any more is not written: the next one that is there will be.
        """
        for span in spans:
            known = self.leases.spans.get(span.lo)
            if known is not None and known.epoch == span.epoch and known.cursor < cursor:
                self.leases.spans[span.lo] = known.at(cursor, stamp)
                if stamp is not None:
                    self._unwritten.add(span.lo)

    def unwritten(self) -> list[Span]:
        """Spans whose cursors have passed over messages of others and are not written yet."""
        return [span for span in self.leases.spans.values() if span.lo in self._unwritten]

    def wrote(self, span: Span, *, is_kept: bool) -> None:
        """The cursor of a span was written, or was not ours any more."""
        known = self.leases.spans.get(span.lo)
        if known is None or known.epoch != span.epoch:
            return
        if not is_kept:
            self.leases.lose([span])
            self.unsettle()
        elif known.cursor == span.cursor:
            self.leases.spans[span.lo] = known.settled()
            self._unwritten.discard(span.lo)
        else:
            # It has passed over more meanwhile.
            self.leases.spans[span.lo] = replace(known, written=span.cursor)
