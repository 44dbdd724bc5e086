"""Writes outcomes: at most one statement of each kind in flight, with all that has ended meanwhile.

Lightly loaded it adds no latency, heavily loaded it batches hundreds, without a timer or a knob.
Every write carries the lease's token, so a worker that lost its lease changes nothing. When the
connection dies the same outcomes are written again on a fresh one; the token makes that safe. A
dead letter that cannot be stored parks the message instead of running it for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.outcomes.failure import Renderer, described, storable
from faststream_outbox.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox.queue.claim import Claim
from faststream_outbox.service import pause_after
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Wire

if TYPE_CHECKING:
    from faststream_outbox.queue.worker import Worker

MOST_PER_STATEMENT = 1000

Ended = tuple[Claim, FinalOutcome]


class Aftermath(Protocol):
    """Who must know that an outcome was written, or that the lease was gone."""

    def settled(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        """The claim is out of our hands."""


class Settler:
    """Collects outcomes and writes them."""

    def __init__(
        self,
        wire: Wire,
        sql: Statements,
        events: Events,
        aftermath: Aftermath,
        *,
        has_dead_letters: bool,
        renderer: Renderer | None = None,
    ) -> None:
        self._wire = wire
        self._sql = sql
        self._events = events
        self._aftermath = aftermath
        self._keeps_dead = has_dead_letters
        self._renderer = renderer
        self._pending: list[Ended] = []
        self._writing: list[Ended] = []
        self._wake = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Outcomes not yet written."""
        return len(self._pending) + len(self._writing)

    def put(self, claim: Claim, outcome: FinalOutcome) -> None:
        """Write this outcome as soon as possible."""
        self._pending.append((claim, outcome))
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                self._writing = self._pending[:MOST_PER_STATEMENT]
                self._pending = self._pending[MOST_PER_STATEMENT:]
                try:
                    await self.write(self._writing)
                except BaseException:
                    self._pending[:0] = [item for item in self._writing if item[0] in item[0].worker.unsettled]
                    raise
                finally:
                    self._writing = []

    def give_up(self, worker: "Worker") -> list[Claim]:
        """Forget what this worker could not get written; its claims stay leased until that ends."""
        left = [claim for claim, _ in (*self._writing, *self._pending) if claim.worker is worker]
        for claim in left:
            claim.is_abandoned = True
        self._pending = [item for item in self._pending if item[0].worker is not worker]
        return left

    async def write(self, ended: Sequence[Ended]) -> None:
        """Write these outcomes, however long it takes."""
        kinds: dict[type[Any], list[Ended]] = {}
        for item in ended:
            kinds.setdefault(type(item[1]), []).append(item)
        for kind, items in kinds.items():
            if kind is Settled:
                self._close(items, {claim.id for claim, _ in items})
            else:
                await self._insist(items)

    async def _insist(self, items: list[Ended]) -> None:
        failures = 0
        began = 0.0
        loop = asyncio.get_running_loop()
        while True:
            try:
                written = await self._send(items)
            except Exception as error:  # noqa: BLE001 - told, and tried again
                if _is_refused(error):
                    await self._set_apart(items, error)
                    return
                failures += 1
                if failures == 1:
                    began = loop.time()
                    self._events.emit(told.ConnectionLost("settle", error))
                await asyncio.sleep(pause_after(failures))
                continue
            if failures:
                self._events.emit(told.ConnectionRestored("settle", loop.time() - began))
                written |= await self._written_before(items, written)
            self._close(items, written)
            return

    async def _written_before(self, items: list[Ended], written: set[int]) -> set[int]:
        """What an earlier try wrote before its answer was lost: rows that nobody else holds or has ended."""
        missing = {claim.id: outcome for claim, outcome in items if claim.id not in written}
        rows = await self._wire.fetch(self._sql["remains"], {"ids": list(missing)}) if missing else []
        stays = {row[0]: row[1] for row in rows}
        return {
            row_id
            for row_id, outcome in missing.items()
            if (not stays.get(row_id) if isinstance(outcome, Retry | Release) else row_id not in stays)
        }

    async def _set_apart(self, items: list[Ended], error: Exception) -> None:
        """Write outcomes of which the server refused one, one by one, and park what it refuses alone."""
        if len(items) > 1:
            for item in items:
                await self._insist([item])
        else:
            await self._park(items, error)

    async def _send(self, items: list[Ended]) -> set[int]:
        values: dict[str, Any] = {
            "ids": [claim.id for claim, _ in items],
            "tokens": [claim.acquired_token for claim, _ in items],
        }
        outcome = items[0][1]
        match outcome:
            case Done():
                name = "settle_done"
            case Retry():
                name = "settle_retry"
                values["delays"] = [item.delay for _, item in items if isinstance(item, Retry)]
                values["attempts"] = [int(item.counts) for _, item in items if isinstance(item, Retry)]
            case Release():
                name = "settle_release"
                values["uncounted"] = [int(not item.counts) for _, item in items if isinstance(item, Release)]
            case Dead():
                name = "settle_dead" if self._keeps_dead else "settle_done"
                if self._keeps_dead:
                    values |= self._verdicts(items)
            case Settled():
                return set()
            case _:
                assert_never(outcome)
        return {row[0] for row in await self._wire.fetch(self._sql[name], values)}

    def _verdicts(self, items: list[Ended]) -> dict[str, list[Any]]:
        dead = [(claim, outcome) for claim, outcome in items if isinstance(outcome, Dead)]
        failures = [described(outcome.error, self._renderer) for _, outcome in dead]
        return {
            "attempts": [int(claim.was_started) for claim, _ in dead],
            "reasons": [storable(str(outcome.reason), 64) for _, outcome in dead],
            "exceptions": [failure.exception for failure in failures],
            "error_types": [failure.error_type for failure in failures],
            "error_messages": [failure.error_message for failure in failures],
            "tracebacks": [failure.traceback for failure in failures],
        }

    async def _park(self, items: list[Ended], error: Exception) -> None:
        for claim, _ in items:
            self._events.emit(
                told.OutcomeRefused(claim.queue, claim.worker.name, claim.id, claim.deliveries_count, error)
            )
        # Not the outcome's own text: it may hold an error whose rendering raises.
        reasons = [
            f"{outcome.reason}; dead letter refused: {error!r}"
            if isinstance(outcome, Dead)
            else f"{type(outcome).__name__} refused: {error!r}"
            for _, outcome in items
        ]
        values = {
            "ids": [claim.id for claim, _ in items],
            "tokens": [claim.acquired_token for claim, _ in items],
            "reasons": [storable(reason, 1000) for reason in reasons],
        }
        failures = 0
        while True:
            try:
                rows = await self._wire.fetch(self._sql["settle_parked"], values)
            except Exception:  # noqa: BLE001 - the reason was told; tried again until it is written
                failures += 1
                await asyncio.sleep(pause_after(failures))
            else:
                written = {row[0] for row in rows}
                for claim, outcome in items:
                    self._aftermath.settled(claim, outcome, lost=claim.id not in written)
                return

    def _close(self, items: Sequence[Ended], written: set[int]) -> None:
        is_done_heard = told.Handled in self._events
        for claim, outcome in items:
            lost = claim.id not in written
            self._aftermath.settled(claim, outcome, lost=lost)
            if lost or is_done_heard or type(outcome) is not Done:
                self._tell(claim, outcome, lost=lost)

    def _tell(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        if claim.is_abandoned:
            return
        kind: Callable[..., Any]
        more: dict[str, Any]
        match outcome:
            case _ if lost:
                if claim.is_lost:
                    return
                kind, more = told.LeaseLost, {"phase": "settling"}
            case Done() | Settled():
                kind, more = told.Handled, {"duration_seconds": claim.duration}
            case Retry(delay=delay, error=error):
                kind, more = (
                    told.Retried,
                    {
                        "duration_seconds": claim.duration,
                        "delay_seconds": delay or 0.0,
                        "error": error,
                    },
                )
            case Dead(reason=reason, error=error):
                kind, more = (
                    told.Died,
                    {
                        "duration_seconds": claim.duration,
                        "reason": reason,
                        "kept": self._keeps_dead,
                        "error": error,
                    },
                )
            case Release():
                kind, more = told.Released, {"was_started": claim.was_started}
            case _:
                assert_never(outcome)
        if kind in self._events:
            self._events.emit(kind(claim.queue, claim.worker.name, claim.id, claim.deliveries_count, **more))


def _is_refused(error: Exception) -> bool:
    """Whether the server understood the statement and refused it, as opposed to not being reachable."""
    state = getattr(error, "sqlstate", None)
    # Connection trouble (08), lack of resources (53), operator intervention (57) and conflicts (40) pass by themselves.
    return isinstance(state, str) and state[:2] not in ("08", "53", "57", "40", "55", "25")
